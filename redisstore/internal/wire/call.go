package wire

// A Call is a script and what it is told: the time comes first, then the frame.
type Call struct {
	Script Script
	Keys   []string
	Frame  Frame
	More   []any
}

// Args are the arguments of the call at a time, "" for the server's.
func (c Call) Args(now any) []any { return append([]any{now, []byte(c.Frame)}, c.More...) }
