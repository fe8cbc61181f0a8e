package redisstore

import (
	"errors"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// maxCalls bounds how often one call is made again with more calendar edges.
// Each time they reach at least twice as far.
const maxCalls = 12

// errFar means that no start could be planned within all those edges.
var errFar = errors.New("redisstore: the start is more calendar windows away than can be planned")

// errAnswer means that something else than the script answered.
var errAnswer = errors.New("redisstore: an answer that cannot be understood")

// errOvertaken means that a call arrived after a later one of its lane. It did
// nothing.
var errOvertaken = errors.New("redisstore: the call was overtaken by a later one")

// How an answer begins; see lua/book.lua.
const (
	answerDone = iota
	answerEdges
	answerLate
	answerShut
)

// call runs a script and returns its answer: the server's time, then what it did.
// Some scripts are told more than the time and numbers.
func (s *Store) call(p wire.Script, write func(edges) ([]string, numbers), more ...any) (numbers, error) {
	now := time.Now().UnixMicro() + s.skew.Load()
	e := edges{now: now, until: now}
	for range maxCalls {
		keys, n := write(e)
		v, err := s.run(p, keys, append([]any{s.now(), []byte(n)}, more...))
		switch {
		case err != nil:
			return nil, s.failure(err)
		case v.size() < 2 || !v.sound():
			return nil, errAnswer
		}
		s.hearClock(v.at(1))
		switch v.at(0) {
		case answerDone:
			return v.from(1), nil
		case answerLate:
			return nil, errOvertaken
		case answerShut:
			if e.shut = s.hearShut(keys, v.from(2)); e.shut == nil {
				return nil, errAnswer
			}
			continue
		}
		if v.at(0) != answerEdges || v.size() != 3 || v.at(2)-v.at(1) > 2*micros(throttle.Farthest) {
			return nil, errAnswer
		}
		e = edges{now: v.at(1), until: max(v.at(2), v.at(1)+2*(e.until-e.now)), told: true, shut: e.shut}
	}
	return nil, errFar
}

// hearClock notes the server's time.
func (s *Store) hearClock(now int64) {
	s.skew.Store(now - time.Now().UnixMicro())
	s.clocked.Store(true)
}
