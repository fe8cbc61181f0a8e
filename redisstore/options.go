package redisstore

// DefaultNamespace is the Namespace of Options that do not set one.
const DefaultNamespace = "throttle"

// Options are all optional; nil means the defaults.
type Options struct {
	// Namespace begins every key. Programs share budgets only within one
	// namespace. Defaults to [DefaultNamespace].
	Namespace string

	// HashTags puts the budgets that one request can need into one slot of a
	// Redis Cluster, by a hash tag that the policies' hosts give. It is always
	// so with a cluster client or a ring; set it for a plain client that talks
	// to a cluster through a proxy. All programs that share budgets must agree.
	// Defaults to false.
	HashTags bool

	// Outage is what to do while Redis is away. Programs that share budgets
	// should agree: one that does not share leaves no room for those that do.
	// Defaults to [OutageWait].
	Outage Outage
}

// An Outage says what a [Store] does with bookings while Redis is away. What is
// guaranteed and what it costs is told in docs/failures.md.
type Outage uint8

const (
	// Wait asks Redis again until it answers, with a growing pause, for as
	// long as the caller's context and MaxWait allow. It is the default, and
	// never passes a limit.
	OutageWait Outage = iota

	// Share gives each node an equal part of each limit, which it keeps by
	// itself: the limit divided by the last known number of nodes in use. It
	// begins some seconds and a window after Redis went away, and ends when
	// Redis has answered for half a second. The fleet passes no limit while all
	// nodes have lost Redis, nor for 20 seconds if only some have. It
	// costs a call a second. Limits that cannot be divided wait.
	OutageSplit

	// FailOpen holds nothing back but what a known penalty closes. It begins some
	// seconds after Redis went away. For limits that are only kept out of
	// politeness.
	OutageFailOpen
)

// String returns the mode's name in lower case.
func (o Outage) String() string {
	switch o {
	case OutageSplit:
		return "share"
	case OutageFailOpen:
		return "failopen"
	}
	return "wait"
}
