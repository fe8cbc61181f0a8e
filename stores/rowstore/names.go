package rowstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/fleetthrottle/throttle/internal/ledger"
)

// names is the name of a group. Its methods make the keys of the group's rows, which begin with the name.
type names string

// board returns the key of the row by which nodes tell each other news.
func (n names) board() string { return string(n) + "/news" }

// record returns the key of the row with the last step of a node.
func (n names) record(node int64) string { return string(n) + "/node-" + nodeName(node) }

// row returns the key of the row of a budget.
func (n names) row(k ledger.Key) string { return string(n) + "/" + hex.EncodeToString(k[:]) }

// rows appends to all the keys of the rows of budgets. A budget that comes twice has one row.
func (n names) rows(all []string, budgets []ledger.Key) []string {
	known := make(map[ledger.Key]struct{}, len(budgets))
	for _, k := range budgets {
		if _, ok := known[k]; !ok {
			known[k] = struct{}{}
			all = append(all, n.row(k))
		}
	}
	return all
}

// budget returns the budget for which row has returned a key.
func (n names) budget(key string) (k ledger.Key) {
	_, _ = hex.Decode(k[:], []byte(key[len(n)+1:]))
	return k
}

// nodeName returns the name of a node in keys, notes and sessions.
func nodeName(node int64) string { return strconv.FormatInt(node, 36) }

// maxName is the length, in bytes, of the longest name that stands in keys as it is.
const maxName = 32

// plain returns the name that stands in keys for a name: the name itself or, if it is longer than maxName or has other bytes
// than letters, digits, '-' and '_', a hash of it.
func plain(name string) string {
	fits := len(name) <= maxName
	for _, c := range []byte(name) {
		fits = fits && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if fits {
		return name
	}
	return hashed(name)
}

// hashed returns 64 bits of a text's SHA-256 as 16 hexadecimal digits.
func hashed(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:8])
}
