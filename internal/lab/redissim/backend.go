package redissim

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// A Backend is a connection to a real server, which runs the scripts of all virtual
// servers. Who waits for it waits for the network, and virtual time stands still.
type Backend struct {
	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
	tape [][]byte // the calls of scripts since the last reset, to be played again
}

// A message is a script's publication.
type message struct{ channel, text string }

// Connect connects to a server. Its connection hears of all messages.
func Connect(addr string) (*Backend, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	b := &Backend{conn: conn, in: bufio.NewReader(conn)}
	return b, b.each([]string{"HELLO", "3"}, []string{"PSUBSCRIBE", "*"})
}

// Reset has the server forget all.
func (b *Backend) Reset() error {
	b.tape = nil
	return b.each([]string{"FLUSHALL"}, []string{"SCRIPT", "FLUSH"})
}

func (b *Backend) each(commands ...[]string) error {
	for _, words := range commands {
		if _, _, err := b.do(words...); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) Close() { _ = b.conn.Close() }

// do has the server run a command. It returns the reply as it came, and the messages that the command
// published: all of that has come when a PING behind the command is answered.
func (b *Backend) do(words ...string) (reply []byte, published []message, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	asked := command(words...)
	if words[0] == "evalsha" || words[0] == "eval" {
		b.tape = append(b.tape, asked)
	}
	if _, err := b.conn.Write(append(slices.Clone(asked), command("PING")...)); err != nil {
		return nil, nil, err
	}

	for {
		value, err := redistest.ReadValue(b.in)
		switch {
		case err != nil:
			return nil, nil, err
		case value[0] == '>':
			if parts := bulks(value); len(parts) == 4 && parts[0] == "pmessage" {
				published = append(published, message{parts[2], parts[3]})
			}

		case string(value) == "+PONG\r\n":
			return reply, published, nil
		default:
			reply = value
		}
	}
}

// command returns the bytes of a command.
func command(words ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.Bytes()
}

// bulks returns the parts of a command, or of any value that is a list of texts.
func bulks(value []byte) (parts []string) {
	_, rest, _ := bytes.Cut(value, []byte("\r\n"))
	for len(rest) > 0 && rest[0] == '$' {
		head, tail, _ := bytes.Cut(rest, []byte("\r\n"))
		size, err := strconv.Atoi(string(head[1:]))
		if err != nil || size < 0 || len(tail) < size+2 {
			return nil
		}
		parts = append(parts, string(tail[:size]))
		rest = tail[size+2:]
	}
	return parts
}

// Replay plays the calls of scripts since the last reset again, in a row,
// on the server as it was then. It returns the microseconds of processor for a call, with
// little of the network's part: so a server works that has enough to do. It plays them
// twice and returns the less, because others use the machine.
func (b *Backend) Replay() (least float64, err error) {
	tape := b.tape
	for range 2 {
		if err := b.Reset(); err != nil {
			return 0, err
		}

		before, _, err := b.do("INFO", "cpu")
		if err != nil {
			return 0, err
		}

		for calls := range slices.Chunk(tape, 50) {
			if err := b.send(calls); err != nil {
				return 0, err
			}
		}

		after, _, err := b.do("INFO", "cpu")
		if err != nil {
			return 0, err
		}

		micros := 1e6 * (Processor(string(after)) - Processor(string(before))) / float64(max(len(tape), 1))
		if least == 0 || micros < least {
			least = micros
		}
	}

	return least, nil
}

// send has the server run commands, whatever it says to them.
func (b *Backend) send(commands [][]byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.conn.Write(append(slices.Concat(commands...), command("PING")...)); err != nil {
		return err
	}
	for {
		value, err := redistest.ReadValue(b.in)
		if err != nil || string(value) == "+PONG\r\n" {
			return err
		}
	}
}

// Rows returns the memory of all keys, and how many there are.
func (b *Backend) Rows() (keys, bytes int, err error) {
	reply, _, err := b.do("KEYS", "*")
	if err != nil {
		return 0, 0, err
	}

	for _, key := range bulks(reply) {
		size, _, err := b.do("MEMORY", "USAGE", key)
		if err != nil {
			return 0, 0, err
		}
		if n, err := strconv.Atoi(strings.Trim(string(size), ":\r\n")); err == nil { // a key may expire meanwhile
			keys, bytes = keys+1, bytes+n
		}
	}

	return keys, bytes, nil
}

// Processor is the seconds of a processor that a server has used, in the text of INFO.
func Processor(info string) float64 {
	return Number(info, "used_cpu_user") + Number(info, "used_cpu_sys")
}

// Number finds a field in the text of INFO, or 0.
func Number(info, field string) (n float64) {
	for line := range strings.Lines(info) {
		if text, found := strings.CutPrefix(line, field+":"); found {
			n, _ = strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return n
}
