package benchmarks

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// A server is a real Redis, with a database for each peer.
type server struct {
	redistest.Server
	watch *redis.Client
}

func newServer(b *testing.B) *server {
	b.Helper()
	s := redistest.Single(b)
	return &server{Server: *s, watch: s.Client(b)}
}

// database returns the URL of a database.
func (s *server) database(i int) string {
	one := s.Server
	one.DB = i
	return one.URL()
}

// A meter is what the server says of itself.
type meter struct {
	cpu      float64 // microseconds, for whatever it does
	commands float64 // that clients sent and that scripts called
	messages float64 // that were published
	bytes    float64 // that it received and sent
	clients  float64 // connections, now
	memory   float64 // bytes, now
}

// read returns what the server has done so far, and its connections and memory now.
func (s *server) read(b *testing.B) meter {
	b.Helper()
	info, err := s.watch.InfoMap(b.Context(), "cpu", "stats", "clients", "memory", "commandstats").Result()
	require.NoError(b, err)
	number := func(section, field string) float64 {
		n, err := strconv.ParseFloat(info[section][field], 64)
		require.NoError(b, err, field)
		return n
	}
	return meter{
		cpu:      1e6 * (number("CPU", "used_cpu_user") + number("CPU", "used_cpu_sys")),
		commands: number("Stats", "total_commands_processed"),
		messages: calls(info["Commandstats"]["cmdstat_publish"]),
		bytes:    number("Stats", "total_net_input_bytes") + number("Stats", "total_net_output_bytes"),
		clients:  number("Clients", "connected_clients"),
		memory:   number("Memory", "used_memory"),
	}
}

var callCount = regexp.MustCompile(`calls=(\d+)`)

// calls returns how often a command was called; "" is what the server says of one that
// never was.
func calls(stats string) float64 {
	found := callCount.FindStringSubmatch(stats)
	if found == nil {
		return 0
	}
	n, _ := strconv.ParseFloat(found[1], 64) // digits
	return n
}

// since returns what was used up between two readings, without the reading.
func (m meter) since(before meter) meter {
	return meter{
		cpu: m.cpu - before.cpu, commands: max(m.commands-before.commands-1, 0), messages: m.messages - before.messages,
		bytes: m.bytes - before.bytes, clients: m.clients - before.clients, memory: m.memory - before.memory,
	}
}

var keyCount = regexp.MustCompile(`keys=(\d+)`)

// keys returns how many keys a database has.
func (s *server) keys(b *testing.B, i int) int {
	b.Helper()
	info, err := s.watch.InfoMap(b.Context(), "keyspace").Result()
	require.NoError(b, err)
	found := keyCount.FindStringSubmatch(info["Keyspace"]["db"+strconv.Itoa(i)])
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	require.NoError(b, err)
	return n
}
