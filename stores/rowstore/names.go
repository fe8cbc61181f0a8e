package rowstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/fleetthrottle/throttle/internal/ledger"
)

// names makes the keys of a group's rows. The keys begin with the name of the group, which names is.
type names string

// board is the row by which nodes tell each other news.
func (n names) board() string { return string(n) + "/news" }

// record is the row with the last step of a node.
func (n names) record(node int64) string { return string(n) + "/node-" + nodeName(node) }

// row is the row of a budget.
func (n names) row(k ledger.Key) string { return string(n) + "/" + hex.EncodeToString(k[:]) }

// rows appends the keys of budgets, each once.
func (n names) rows(all []string, keys []ledger.Key) []string {
	known := make(map[ledger.Key]struct{}, len(keys))
	for _, k := range keys {
		if _, ok := known[k]; !ok {
			known[k] = struct{}{}
			all = append(all, n.row(k))
		}
	}
	return all
}

// budget is the budget of a key that row has returned.
func (n names) budget(key string) (k ledger.Key) {
	_, _ = hex.Decode(k[:], []byte(key[len(n)+1:]))
	return k
}

// nodeName returns the name of a node in keys, notes and sessions.
func nodeName(node int64) string { return strconv.FormatInt(node, 36) }

// maxName is how many bytes of a name stand in keys.
const maxName = 32

// plain returns a name as it stands in keys: itself, or a hash of it if it is long or has bytes that
// keys do not have.
func plain(name string) string {
	ok := len(name) <= maxName
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if ok {
		return name
	}
	return hashed(name)
}

// hashed returns a hash of a text as 16 digits.
func hashed(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:8])
}
