package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// A source has snapshots, one after the other. It ends with io.EOF.
type source func(ctx context.Context) (*fleet.Snapshot, error)

// record returns a source that writes what it gives to a file, a line for each snapshot.
func (s source) record(path string) (source, func() error, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	e := lines(f)
	return func(ctx context.Context) (*fleet.Snapshot, error) {
		snap, err := s(ctx)
		if err == nil {
			err = e.Encode(snap)
		}
		return snap, err
	}, f.Close, nil
}

// longestLine bounds a snapshot in a recording.
const longestLine = 64 << 20

// replay reads a recording. A mistake in it names its line.
func replay(path string) (all []*fleet.Snapshot, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, longestLine)
	for n := 1; lines.Scan(); n++ {
		s := new(fleet.Snapshot)
		if err := json.Unmarshal(lines.Bytes(), s); err != nil || s.Version != outputVersion {
			return nil, fmt.Errorf("%s:%d: it is not a snapshot as top --record writes it", path, n)
		}
		all = append(all, s)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(all) == 0 {
		return nil, errors.New(path + ": it has no snapshot")
	}
	return all, nil
}

// played returns a source of snapshots that were read.
func played(all []*fleet.Snapshot) source {
	return func(context.Context) (*fleet.Snapshot, error) {
		if len(all) == 0 {
			return nil, io.EOF
		}
		s := all[0]
		all = all[1:]
		return s, nil
	}
}
