package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// A source has snapshots, one after the other. It ends with io.EOF.
type source func(ctx context.Context) (*fleet.Snapshot, error)

// record returns a source that writes what it gives to a file, a line for each snapshot.
func (s source) record(path string) (source, func() error, error) {
	cut := isCut(path)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}

	if cut {
		if _, err := f.WriteString("\n"); err != nil {
			f.Close()
			return nil, nil, err
		}
	}

	e := jsonLines(f)
	return func(ctx context.Context) (*fleet.Snapshot, error) {
		snap, err := s(ctx)
		if err == nil {
			err = e.Encode(snap)
		}
		return snap, err
	}, f.Close, nil
}

// isCut reports whether the last line of a file has no end, as after a crash.
func isCut(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}

	f, err := os.Open(path)
	if err != nil {
		return false
	}

	defer f.Close()
	last := make([]byte, 1)

	_, err = f.Seek(-1, io.SeekEnd)
	if err == nil {
		_, err = f.Read(last)
	}

	return err == nil && last[0] != '\n'
}

// longestLine bounds a snapshot in a recording.
const longestLine = 64 << 20

// A recording is a file that top --record wrote. One snapshot of it is in memory at a time.
type recording struct {
	path   string
	file   *os.File
	lines  *bufio.Scanner
	line   int
	end    int64   // of the lines that were read
	places []place // of their snapshots
	broken int     // how many lines were no snapshots
	first  int     // the first of these
	names  *labels // of the budgets, which recordings do not have
}

// A place is where a snapshot stands in a recording.
type place struct {
	at     int64
	length int
}

// openRecording opens a recording. Nothing is read yet.
func openRecording(path string, names *labels) (*recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &recording{path: path, file: f, lines: bufio.NewScanner(f), names: names}
	r.lines.Buffer(nil, longestLine)
	r.lines.Split(wholeLines)
	return r, nil
}

// wholeLines implements [bufio.SplitFunc]: lines with their ends.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	end := bytes.IndexByte(data, '\n') + 1
	if end == 0 && atEOF {
		end = len(data)
	}
	if end == 0 {
		return 0, nil, nil
	}
	return end, data[:end], nil
}

// next is a [source] of the snapshots in the recording. Lines that are none, such as one that a
// crash has cut, are counted; a recording of such lines only is an error.
func (r *recording) next(ctx context.Context) (*fleet.Snapshot, error) {
	for ctx.Err() == nil && r.lines.Scan() {
		text := r.lines.Bytes()
		r.line++
		r.end += int64(len(text))

		if s, ok := r.snapshot(text); ok {
			r.places = append(r.places, place{r.end - int64(len(text)), len(text)})
			return s, nil
		}

		r.broken++
		if r.broken == 1 {
			r.first = r.line
		}
	}

	switch err := cmp.Or(ctx.Err(), r.lines.Err()); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", r.path, err)
	case len(r.places) > 0:
		return nil, io.EOF
	case r.broken > 0:
		return nil, fmt.Errorf("%s:%d: it is not a snapshot as top --record writes it", r.path, r.first)
	}

	return nil, errors.New(r.path + ": it has no snapshot")
}

// snapshot returns the snapshot of a line.
func (r *recording) snapshot(text []byte) (*fleet.Snapshot, bool) {
	s := new(fleet.Snapshot)
	err := json.Unmarshal(text, s)
	r.names.set(s)
	return s, err == nil && s.Version == outputVersion
}

// readAll reads the recording to its end, so that [recording.at] knows all places.
func (r *recording) readAll(ctx context.Context) error {
	for {
		if _, err := r.next(ctx); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// last is a [source] of the last snapshot alone.
func (r *recording) last(ctx context.Context) (s *fleet.Snapshot, err error) {
	for {
		next, err := r.next(ctx)
		if err == io.EOF && s != nil {
			return s, nil
		} else if err != nil {
			return nil, err
		}
		s = next
	}
}

// at returns one of the snapshots that were read.
func (r *recording) at(i int) (*fleet.Snapshot, error) {
	text := make([]byte, r.places[i].length)
	if _, err := r.file.ReadAt(text, r.places[i].at); err != nil {
		return nil, err
	}
	s, ok := r.snapshot(text)
	if !ok {
		return nil, fmt.Errorf("%s: it has changed", r.path)
	}
	return s, nil
}

// warn says how many lines could not be read.
func (r *recording) warn(talk io.Writer) {
	if r.broken > 0 {
		fmt.Fprintf(talk, "%s: %s could not be read, the first is line %d\n", r.path, stat.Count(r.broken, "line", "lines"), r.first)
	}
}
