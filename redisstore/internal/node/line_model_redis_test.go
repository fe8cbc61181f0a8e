package node

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A lineModelServer runs the scripts of a real server, in the world in which a call is made.
type lineModelServer struct {
	t       *testing.T
	client  redis.UniversalClient
	script  wire.Script
	row     string // the key
	results map[[32]byte]lineModelResult
	runs    int
}

// A lineModelResult is what a call did to a row at a time. It is the same each time.
type lineModelResult struct {
	row, reply string
	args       []any
}

const lineModelRecord = "record"

func newLineModelServer(t *testing.T, c redis.UniversalClient, script wire.Script, row string) *lineModelServer {
	require.NoError(t, c.ScriptLoad(t.Context(), script.Source).Err())
	require.NoError(t, c.FlushDB(t.Context()).Err())
	return &lineModelServer{t: t, client: c, script: script, row: row, results: make(map[[32]byte]lineModelResult)}
}

// Key implements [wire.Budgets].
func (s *lineModelServer) Key(*store.Budget) string { return s.row }

// Known implements [wire.Budgets]. The model's server forgets nothing, so nobody need know more.
func (s *lineModelServer) Known(*store.Budget, string, wire.Boundaries) wire.Known {
	return wire.Known{}
}

// call makes a call of some ops in a world.
func (s *lineModelServer) call(w *lineModelWorld, ops []*wire.Op) (*wire.BookReply, lineModelResult) {
	r := &wire.BookRequest{Record: lineModelRecord, Number: 1, Ops: ops, Shared: "news"}
	call := r.Write(wire.Boundaries{}, s)
	copy(call.Frame[8:16], make([]byte, 8))
	name := sha256.Sum256(slices.Concat(wire.Frame(nil).Add(w.now), call.Frame, []byte(w.row)))
	copy(call.Frame[8:16], wire.Frame(nil).Add(int64(binary.LittleEndian.Uint64(name[:])>>25+1))) // the seed
	done, ok := s.results[name]
	if !ok {
		done = s.run(w, call)
		s.results[name] = done
	}
	f := wire.Frame(done.reply)
	require.Equal(s.t, int64(wire.Done), f.At(0))
	reply, err := call.Read(f.From(1))
	require.NoError(s.t, err)
	return &reply, done
}

// run runs the script.
func (s *lineModelServer) run(w *lineModelWorld, call *wire.BookCall) lineModelResult {
	ctx, pipe := s.t.Context(), s.client.Pipeline()
	if w.row != "" {
		pipe.Set(ctx, s.row, w.row, 0)
	} else {
		pipe.Del(ctx, s.row)
	}
	pipe.Del(ctx, lineModelRecord)
	args := []any{"evalsha", s.script.Hash, len(call.Keys)}
	for _, k := range call.Keys {
		args = append(args, k)
	}
	args = append(args, call.Args(fmt.Sprint(w.now))...)
	cmd := pipe.Do(ctx, args...)
	row := pipe.Get(ctx, s.row)
	if _, err := pipe.Exec(ctx); !errors.Is(err, redis.Nil) {
		require.NoError(s.t, err)
	}
	s.runs++
	reply, err := cmd.Text()
	require.NoError(s.t, err)
	return lineModelResult{row.Val(), reply, args}
}
