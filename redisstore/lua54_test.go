package redisstore_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	lua "github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// A recorder keeps calls of scripts with what their keys hold before and after, for
// testdata/lua54/replay.lua.
type recorder struct {
	mu      sync.Mutex
	out     *bufio.Writer
	scripts map[string]int // by hash, counted from 1
	calls   map[string]int // that were made, by the name of the script
	kept    map[string]int // that were recorded
	names   []string
	tapes   map[*testing.T]*tape
}

// newRecorder writes the scripts, and is ready for calls.
func newRecorder(w io.Writer) *recorder {
	r := &recorder{out: bufio.NewWriter(w), scripts: make(map[string]int), calls: make(map[string]int), kept: make(map[string]int), tapes: make(map[*testing.T]*tape)}
	names := map[string]string{
		lua.BookScript.Hash(): "book", lua.PauseScript.Hash(): "pause", lua.SlotsPauseScript.Hash(): "slots_pause",
		lua.ReconcileScript.Hash(): "reconcile", lua.SetUsedScript.Hash(): "set_used", lua.ClosedScript.Hash(): "closed",
		lua.StatusScript.Hash(): "status", lua.SlotsStatusScript.Hash(): "slots_status", lua.HeartbeatScript.Hash(): "heartbeat", lua.AppointScript.Hash(): "appoint",
	}
	r.number(len(lua.Scripts))
	for i, s := range lua.Scripts {
		r.scripts[s.Hash()] = i + 1
		r.names = append(r.names, names[s.Hash()])
		r.text(names[s.Hash()])
		r.text(s.Source())
	}
	return r
}

func (r *recorder) number(n int) { _ = binary.Write(r.out, binary.LittleEndian, uint32(n)) }

func (r *recorder) text(s string) {
	r.number(len(s))
	_, _ = r.out.WriteString(s)
}

// texts writes a list; what is no text is missing.
func (r *recorder) texts(all []any) {
	r.number(len(all))
	for _, v := range all {
		if v == nil {
			r.number(0)
			continue
		}
		r.number(1)
		if b, ok := v.([]byte); ok {
			v = string(b)
		}
		r.text(fmt.Sprint(v))
	}
}

// keepAll is how many calls of a script are recorded; of those that come later, one in keepOne.
const keepAll, keepOne = 500, 64

// wants counts a call, and reports whether it is to be recorded.
func (r *recorder) wants(script string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := r.names[r.scripts[script]-1]
	r.calls[name]++
	return r.calls[name] <= keepAll || r.calls[name]%keepOne == 0
}

// A tape is the innermost hook of clients that share their keys, those of one test. It is made in the bubble of
// the clients: one call at a time has the keys, and the others must let time pass.
type tape struct {
	*recorder
	one chan struct{}
}

// tape returns the tape of a test.
func (r *recorder) tape(t *testing.T) *tape {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tapes[t] == nil {
		r.tapes[t] = &tape{r, make(chan struct{}, 1)}
	}
	return r.tapes[t]
}

func (r *tape) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (r *tape) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *tape) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if !isScript(cmd) {
			return next(ctx, cmd)
		}
		script, count := args[1].(string), args[2].(int)
		if len(script) != 40 {
			script = lua.FromSource(script).Hash()
		}
		keys, rest := args[3:3+count], args[3+count:]
		r.one <- struct{}{} // nobody changes the keys meanwhile
		defer func() { <-r.one }()
		if r.scripts[script] == 0 || len(rest) == 0 || rest[0] == "" || !r.wants(script) {
			return next(ctx, cmd)
		}
		hold := func() []any {
			look := redis.NewSliceCmd(ctx, append([]any{"mget"}, keys...)...)
			_ = next(ctx, once{look})
			return look.Val()
		}
		before := hold()
		err := next(ctx, cmd)
		after := hold()
		answer, ok := cmd.(interface{ Text() (string, error) })
		if err != nil || !ok || len(before) != count || len(after) != count {
			return err
		}
		text, err := answer.Text()
		if err != nil {
			return nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.kept[r.names[r.scripts[script]-1]]++
		r.number(r.scripts[script])
		r.texts(keys)
		r.texts(rest)
		r.texts(before)
		r.text(text)
		r.texts(after)
		return nil
	}
}

// A once is a command that the client does not repeat when the test is over.
type once struct{ *redis.SliceCmd }

// NoRetry is the method by which go-redis asks a command.
func (once) NoRetry() bool { return true }

// TestP1_InLua54: the scripts answer in Lua 5.4, which Dragonfly runs, what they answer in Redis, and leave the same
// in the keys: in the calls of the vectors and of random operations, and for make soak of the contract.
func TestP1_InLua54(t *testing.T) {
	soak.WithoutRace(t) // it is TestContract once more
	program, err := exec.LookPath("lua5.4")
	require.NoError(t, err, "no lua5.4 on PATH: run `make lua`, or install it (apt-get install lua5.4)")
	path := filepath.Join(t.TempDir(), "calls")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	r := newRecorder(file)
	server := redistest.Single(t)
	t.Run("calls", func(t *testing.T) {
		on := func(t *testing.T, server *redistest.Server, to *tape, o redisstore.Options) *redisstore.Store {
			client := server.Client(t)
			client.AddHook(to)
			return atRest(t, redisstore.NewAt(client, o, bubbleClock))
		}
		if soak.Most(true, false) {
			storetest.RunWithin(t, lineSlack, func(t *testing.T) store.Store {
				forgets(t, server.Client(t))
				return on(t, server, r.tape(t), redisstore.Options{})
			})
		}
		files, err := filepath.Glob("testdata/vectors/*.txt")
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			storetest.RunVectors(t, filepath.Base(file), string(text), func(t *testing.T) storetest.Fleet { return newPlayers(t, server, r.tape(t)) })
		}
		for seed := range uint64(soak.Most(6, 1)) {
			runBubble(t, fmt.Sprint(seed), func(t *testing.T, server *redistest.Server) {
				d := newPair(t, 500+seed, on(t, server, r.tape(t), redisstore.Options{}))
				for d.op = range differentialOps {
					d.step()
				}
			})
		}
		runBubble(t, "heartbeats", func(t *testing.T, server *redistest.Server) {
			to, o := r.tape(t), redisstore.Options{Outage: redisstore.OutageSplit}
			for range 2 {
				ask(t, on(t, server, to, o), booking(hourly))
				time.Sleep(5 * time.Second)
			}
			time.Sleep(time.Minute) // the groups are forgotten
		})
	})
	require.NoError(t, r.out.Flush())
	for _, name := range r.names {
		// Scripts of the look at a server answer lists, and only the contract has a node appointed.
		if name != "" && (name != "appoint" || soak.Most(true, false)) {
			require.Positive(t, r.kept[name], name)
		}
	}

	// Thousands of calls take a second or two. A script that does not end in Lua 5.4 must not keep the test from saying so.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "testdata/lua54/replay.lua", path).CombinedOutput()
	t.Log(strings.TrimSpace(string(out)), r.kept)
	require.NoError(t, err, "%s", out)
}
