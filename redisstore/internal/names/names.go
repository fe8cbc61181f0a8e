// Package names says what the keys and channels of a namespace are called.
package names

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle/store"
)

var escape = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25")

// Escape keeps a text from beginning or ending a hash tag. No two texts become one.
func Escape(text string) string { return escape.Replace(text) }

// Problem says what is wrong with a namespace and what to write instead. "" says that nothing is wrong, also with "",
// which is the default namespace.
func Problem(namespace string) string {
	unprintable := func(c rune) bool { return unicode.IsControl(c) || c == utf8.RuneError }
	switch {
	case strings.ContainsFunc(namespace, unprintable):
		return fmt.Sprintf("%q has a character that nobody sees: use letters, digits and punctuation", namespace)
	case strings.TrimSpace(namespace) != namespace:
		return fmt.Sprintf("%q begins or ends with a blank: write %q", namespace, strings.TrimSpace(namespace))
	}
	return ""
}

// storedForm is the version of the stored form. It is part of every key, so that
// programs with different forms never share a row: see docs/upgrades.md.
const storedForm = "6"

// A Space is a namespace as one node uses it: what its keys and channels are called.
type Space struct {
	Node   string     // this node among those that use the same Redis: random
	Tagged bool       // budgets of one group share a hash tag: see redisstore.Options
	DB     func() int // the logical database; nil: 0

	prefix string // that all begin with
}

// New returns a namespace for a new node.
func New(namespace string) *Space {
	id := make([]byte, 9)
	rand.Read(id) // never fails
	return &Space{prefix: Escape(namespace) + ":" + storedForm + ":", Node: base64.RawURLEncoding.EncodeToString(id)}
}

// plain is [Escape] for what must not look like more than one part of a key.
var plain = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25", ":", "%3A")

// Row returns the key of a budget's row. In a cluster its hash tag is the group, so that
// the budgets of one request lie in one slot. The group depends on the other
// policies, so it stays out of the key where it is not needed: a budget keeps
// its state by policy and key, whatever happens to the table around it.
func (n *Space) Row(b *store.Budget) string {
	var hash [22]byte // of letters
	base64.RawURLEncoding.Encode(hash[:], b.Key[:])
	return n.prefix + n.Tag(b.Group) + Escape(b.Policy) + ":" + string(hash[:])
}

// Leases returns the key of a budget of concurrency slots. It ends unlike that of any
// other form.
func (n *Space) Leases(b *store.Budget) string { return n.Row(b) + ":flight" }

// Appointments returns the key of when callers with places of a budget should come again. It ends
// unlike that of any other form.
func (n *Space) Appointments(b *store.Budget) string { return n.Row(b) + ":places" }

// Namespace is what all keys begin with, whatever node made them.
func (n *Space) Namespace() string { return n.prefix }

// Of returns the key of the row, or of the leases, of a charge's budget.
func (n *Space) Of(c *store.Charge) string {
	if c.Limit.Kind() == store.KindConcurrency {
		return n.Leases(&c.Budget)
	}
	return n.Row(&c.Budget)
}

// Record returns the key under which Redis remembers the last call of this node for a
// group. No budget has it: those end in a hash of 22 letters.
func (n *Space) Record(group string) string {
	return n.prefix + n.Tag(group) + "calls:" + n.Node + ":" + plain.Replace(group)
}

// Heartbeats returns the key under which Redis remembers which nodes use a group. It
// ends unlike any other.
func (n *Space) Heartbeats(group string) string {
	return n.prefix + n.Tag(group) + "nodes:" + plain.Replace(group) + ":presence"
}

// Tag returns the hash tag of a group, where there is a cluster.
func (n *Space) Tag(group string) string {
	if !n.Tagged {
		return ""
	}
	return "{" + Escape(group) + "}:"
}

// Shared is the channel where all nodes are told of the budgets of a group. With hash tags
// each tag has its own, because tags may lie on servers that do not talk to each other.
func (n *Space) Shared(group string) string { return n.channels(group) + "pause" }

// Own is the channel where this node is told that a waiter of its has room.
func (n *Space) Own(group string) string { return n.OwnPrefix(group) + n.Node }

// OwnPrefix is what all nodes' own channels for a group begin with.
func (n *Space) OwnPrefix(group string) string { return n.channels(group) + "wake:" }

// channels is what the names of a group's channels begin with. The logical databases
// of one server share its channels, so those must tell them apart.
func (n *Space) channels(group string) string {
	if n.DB == nil || n.DB() == 0 {
		return n.prefix + n.Tag(group)
	}
	return n.prefix + "db" + strconv.Itoa(n.DB()) + ":" + n.Tag(group)
}
