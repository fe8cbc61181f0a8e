// Package names names the keys and channels of a namespace.
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

// Problem names the fault of a namespace and what to write instead. It returns "" for a good namespace, and for "",
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
// programs with different forms never share a row: see docs/run/change.md.
const storedForm = "7"

// A Space is a namespace as one node uses it: the names of its keys and channels.
type Space struct {
	Node   string     // names this node among all nodes that use the same Redis: random
	Tagged bool       // all keys and channels have the namespace as their hash tag: see redisstore.Options
	DB     func() int // the number of the logical database; without a function it is 0

	prefix string // all keys and channels begin with it
	tag    string // the hash tag, where there is one: see Tag
}

// New returns a namespace for a new node.
func New(namespace string) *Space {
	id := make([]byte, 9)
	rand.Read(id) // never fails

	// Braces would be taken for a hash tag, so they are escaped.
	escaped := Escape(namespace)
	return &Space{
		prefix: escaped + ":" + storedForm + ":",
		tag:    "{" + escaped + "}:",
		Node:   base64.RawURLEncoding.EncodeToString(id),
	}
}

// plain is [Escape] for what must not look like more than one part of a key.
var plain = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25", ":", "%3A")

// Row returns the key of a budget's row: the namespace, the policy and the hashed key. The other policies
// of a table are not part of the key, so a budget keeps its state whatever happens to the table around it,
// and two programs with different tables share the budgets of the policies that both have.
func (n *Space) Row(b *store.Budget) string {
	var hash [22]byte // of letters
	base64.RawURLEncoding.Encode(hash[:], b.Key[:])
	return n.prefix + n.Tag() + Escape(b.Policy) + ":" + string(hash[:])
}

// Leases returns the key of a budget of concurrency slots. No key of a
// different form ends so.
func (n *Space) Leases(b *store.Budget) string { return n.Row(b) + ":flight" }

// Appointments returns the key of when callers with places of a budget should come again. No key
// of a different form ends so.
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
	return n.prefix + n.Tag() + "calls:" + n.Node + ":" + plain.Replace(group)
}

// Heartbeats returns the key under which Redis remembers which nodes use a group. It
// ends unlike any other.
func (n *Space) Heartbeats(group string) string {
	return n.prefix + n.Tag() + "nodes:" + plain.Replace(group) + ":presence"
}

// Tag returns the hash tag of the namespace, or "" where there is no cluster. One tag puts all budgets of a
// namespace into one slot, because one script books all budgets of a request, and which budgets
// a request needs is known to its own program only.
func (n *Space) Tag() string {
	if !n.Tagged {
		return ""
	}

	return n.tag
}

// Shared returns the channel on which all nodes hear of pauses and losses.
func (n *Space) Shared() string { return n.channels() + "pause" }

// Own returns the channel on which this node hears that a waiter of this node has room.
func (n *Space) Own() string { return n.OwnPrefix() + n.Node }

// OwnPrefix returns the common beginning of the Own channels of all nodes.
func (n *Space) OwnPrefix() string { return n.channels() + "wake:" }

// channels returns the common beginning of the names of all channels. The logical databases
// of one server share its channels, so the number of the database is part of the names.
func (n *Space) channels() string {
	if n.DB == nil || n.DB() == 0 {
		return n.prefix + n.Tag()
	}

	return n.prefix + "db" + strconv.Itoa(n.DB()) + ":" + n.Tag()
}
