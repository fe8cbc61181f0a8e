package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"
)

// MasterName is the sentinel's name for the master.
const MasterName = "throttle"

// SentinelServers are a master, its replica, and the sentinel that watches
// them and promotes the replica by its own vote alone.
type SentinelServers struct {
	Master   *Server
	Replica  *Server
	Sentinel *Server
}

// Sentinel starts the three servers and waits until the replica follows the
// master and the sentinel knows both, so that a failover would work.
func Sentinel(t TB) *SentinelServers {
	t.Helper()
	s := &SentinelServers{Master: Single(t)}
	s.Replica = Single(t, "--replicaof", "127.0.0.1", fmt.Sprint(s.Master.p.port))
	s.Replica.awaitInfo("replication", "master_link_status:up")
	// A sentinel asks its master for replicas when it starts and then every
	// ten seconds: so the master has to know of its replica by then.
	s.Master.awaitInfo("replication", "state=online")
	s.Sentinel = startSentinel(t, s.Master)
	s.Sentinel.awaitInfo("sentinel", "status=ok,address="+s.Master.Addr+",slaves=1")
	s.awaitCandidate(t)
	return s
}

// Client returns a client that asks the sentinel for the master. It is closed
// when t ends.
func (s *SentinelServers) Client(t TB) redis.UniversalClient {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    MasterName,
		SentinelAddrs: []string{s.Sentinel.Addr},
		PoolSize:      poolSize,
	})
	closeAfter(t, client)
	return client
}

// Failover kills the master and waits until the sentinel has promoted the
// replica, which takes about a second. From then on Master is the promoted
// server and Replica the server that was killed.
func (s *SentinelServers) Failover() {
	s.Master.t.Helper()
	s.Master.Kill()
	s.giveUpAfter(givenUpSoon)
	s.Replica.awaitInfo("replication", "role:master")
	s.Sentinel.awaitInfo("sentinel", "address="+s.Replica.Addr)
	s.giveUpAfter(neverGivenUp)
	s.Master, s.Replica = s.Replica, s.Master
}

// A master may be silent for this number of milliseconds. Only a killed master is given up: a
// busy machine may keep a master from answering for a second, and a failover that
// nobody asked for loses writes that the replica does not have yet.
const (
	givenUpSoon  = 200
	neverGivenUp = 10 * 60 * 1000
)

// giveUpAfter tells the sentinel how long a silent master is waited for.
func (s *SentinelServers) giveUpAfter(ms int) {
	s.Sentinel.t.Helper()
	c := redis.NewSentinelClient(&redis.Options{Addr: s.Sentinel.Addr})
	defer c.Close()
	if err := c.Set(context.Background(), MasterName, "down-after-milliseconds", fmt.Sprint(ms)).Err(); err != nil {
		s.Sentinel.t.Fatalf("redistest: the sentinel at %s: %v", s.Sentinel.Addr, err)
	}
}

// startSentinel starts a sentinel that gives no master up. It needs a file, in which it
// keeps its discoveries.
func startSentinel(t TB, master *Server) *Server {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	config := fmt.Sprintf(`bind 127.0.0.1
sentinel monitor %[1]s 127.0.0.1 %[2]d 1
sentinel down-after-milliseconds %[1]s %[3]d
sentinel failover-timeout %[1]s 3000
`, MasterName, master.p.port, neverGivenUp)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}

	p, err := start(dir, func(port int) []string {
		return []string{file, "--sentinel", "--port", fmt.Sprint(port)}
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(p.kill)
	return newServer(t, p, 0)
}

// awaitCandidate waits until the sentinel has heard from the replica itself
// that it follows the master; it would not promote it before.
func (s *SentinelServers) awaitCandidate(t TB) {
	t.Helper()
	c := redis.NewSentinelClient(&redis.Options{Addr: s.Sentinel.Addr})
	defer c.Close()
	err := poll(func() (bool, error) {
		replicas, err := c.Replicas(context.Background(), MasterName).Result()
		return len(replicas) == 1 && replicas[0]["master-link-status"] == "ok", err
	})
	if err != nil {
		t.Fatalf("redistest: the sentinel has no candidate: %v", err)
	}
}

// awaitInfo waits until a section of the server's INFO holds want.
func (s *Server) awaitInfo(section, want string) {
	s.t.Helper()
	c := redis.NewClient(s.Options())
	defer c.Close()
	err := poll(func() (bool, error) {
		info, err := c.Info(context.Background(), section).Result()
		return strings.Contains(info, want), err
	})
	if err != nil {
		s.t.Fatalf("redistest: INFO %s of %s holds no %q: %v", section, s.Addr, want, err)
	}
}
