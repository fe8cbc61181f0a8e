package ledger

// A Search looks for the earliest start on one row. It remembers how far it
// came, so that asking again for a later start costs only the rest of the way.
type Search struct {
	row  *Row
	rule rule
	from int64 // no start earlier than this was asked for
	tail int64 // nor is one allowed that is earlier: see behind
	free bool  // it is unlimited, and not shut: see unlimited.go

	horizon int64 // see store.Booking
	single  bool  // the caller needs no start in other budgets
	steady  bool  // Sliding: the pace counts from starts that have come, too: none is booked far enough ahead to count from

	i, j  int   // Sliding, Bucket: the run of entries i … j-1
	sum   int64 // its sum
	k     int   // the entry that the pace stands at
	wait  int64 // Sliding: the earliest start by the limit alone; 0: not asked yet
	pace  int64 // Sliding: what one unit keeps clear of others; see even
	part  int64 // Sliding: the length of the parts at whose begin it starts; 0: anywhere
	level level // Bucket: what was spent when the run begins

	called bool // Concurrency: room was set aside, and is free again

	ramp *Search // of what a slow start keeps free; nil: not asked yet
}
