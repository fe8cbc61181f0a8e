package fleet

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// Millis is a length of time that is a number of milliseconds in JSON.
type Millis struct{ time.Duration }

// MarshalJSON implements [json.Marshaler].
func (m Millis) MarshalJSON() ([]byte, error) { return json.Marshal(m.Milliseconds()) }

// UnmarshalJSON implements [json.Unmarshaler]. What is longer than a duration can be is
// the longest.
func (m *Millis) UnmarshalJSON(text []byte) error {
	var n int64
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	m.Duration = time.Duration(max(-most, min(n, most))) * time.Millisecond
	return nil
}

// moment reads a moment of the server's clock, in microseconds. One beyond the year 9999 is
// nonsense, and cannot be written as JSON.
func moment(text string) (time.Time, bool) {
	micros, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMicro(micros).UTC(), err == nil && micros >= 0 && micros < 250_000_000_000_000_000
}
