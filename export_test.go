package throttle

// WithChecksum returns the text of a place that has these bytes.
func WithChecksum(b []byte) []byte { return sealPlace(b) }
