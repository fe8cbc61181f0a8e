package benchmarks

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A crew is some processes of this program that carry out orders together.
type crew struct{ members []*hand }

// A hand is a member seen from the program that started it.
type hand struct {
	cmd  *exec.Cmd
	in   *json.Encoder
	out  *json.Decoder
	errs bytes.Buffer
}

// newCrew starts the processes. They end with b.
func newCrew(b *testing.B, processes int) *crew {
	b.Helper()
	self, err := os.Executable()
	require.NoError(b, err)
	c := &crew{}
	for range processes {
		h := &hand{cmd: exec.Command(self)}
		h.cmd.Env = append(os.Environ(), memberEnv+"=1")
		h.cmd.Stderr = &h.errs
		in, err := h.cmd.StdinPipe()
		require.NoError(b, err)
		out, err := h.cmd.StdoutPipe()
		require.NoError(b, err)
		h.in, h.out = json.NewEncoder(in), json.NewDecoder(out)
		require.NoError(b, h.cmd.Start())
		b.Cleanup(func() {
			require.NoError(b, in.Close())
			require.NoError(b, h.cmd.Wait(), &h.errs)
		})
		c.members = append(c.members, h)
	}
	return c
}

// do lets all members carry out the order at once and returns what they report.
// The time is that of the slowest.
func (c *crew) do(b *testing.B, o order) done {
	b.Helper()
	var word string
	for i, h := range c.members {
		o.Process = i
		require.NoError(b, h.in.Encode(o))
		h.hear(b, &word)
	}
	for _, h := range c.members {
		require.NoError(b, h.in.Encode("go"))
	}
	var all done
	for _, h := range c.members {
		var d done
		h.hear(b, &d)
		all.Calls += d.Calls
		all.Trips += d.Trips
		all.Took, all.Median = max(all.Took, d.Took), max(all.Median, d.Median)
	}
	return all
}

// hear waits for a member's answer.
func (h *hand) hear(b *testing.B, v any) {
	b.Helper()
	if err := h.out.Decode(v); err != nil {
		_ = h.cmd.Wait() // why is in what it wrote
		require.NoError(b, err, &h.errs)
	}
}
