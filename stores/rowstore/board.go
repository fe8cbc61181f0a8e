package rowstore

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
)

// A board is the row by which the nodes of a group tell each other news. It is small, because nodes that wait
// read it again and again: notes are taken down when all nodes that wait have had the time to read them.
type board struct {
	time    int64 // the latest time that any node has seen, if there are many clocks
	last    int64 // the version of the last note, or 0 if there was none
	dropped int64 // the version of the last note that was taken down although a node may still have needed it
	notes   []note
}

// A note is news of one node for others. Versions follow the clock, so they grow even if the
// row is lost.
type note struct {
	version, from int64
	all           bool    // the note is for all nodes
	nodes         []int64 // the nodes that the note is for, if it is not for all
	news          []byte
}

const (
	boardForm = 1         // each form has a number of its own
	noteLife  = 3_000_000 // for how many microseconds a note stays: a node that waits looks once a second at the least
	askLife   = 250_000   // for how many microseconds a note matters that asks a node to come: the node counts as silent after that time
	maxBoard  = 2048      // bytes of notes
)

// errForm says that a row was written by a different version of this package.
var errForm = errors.New("rowstore: a row was written by another version of the program: use one version, or another Name")

// parseBoard returns the board of a row, which may not exist.
func parseBoard(b []byte) (all board, err error) {
	if len(b) == 0 {
		return board{}, nil
	}
	if b[0] != boardForm {
		return board{}, errForm
	}

	u := node.Unpack(b[1:])
	all = board{time: u.Number(), last: u.Number(), dropped: u.Number()}
	for n := u.Number(); n > 0 && !u.Failed(); n-- {
		all.notes = append(all.notes, unpackNote(&u))
	}

	if !u.Done() {
		return board{}, ledger.ErrCorrupt
	}

	return all, nil
}

// bytes returns the row of the board.
func (all *board) bytes() []byte {
	b := []byte{boardForm}
	for _, x := range []int64{all.time, all.last, all.dropped, int64(len(all.notes))} {
		b = binary.AppendVarint(b, x)
	}
	for i := range all.notes {
		b = all.notes[i].append(b)
	}
	return b
}

// append appends the note as bytes.
func (n *note) append(b []byte) []byte {
	b = binary.AppendVarint(binary.AppendVarint(b, n.version), n.from)

	// 0 stands for all nodes, and any other number for the number of readers plus 1.
	to := int64(len(n.nodes)) + 1
	if n.all {
		to = 0
	}

	b = binary.AppendVarint(b, to)
	if !n.all {
		for _, reader := range n.nodes {
			b = binary.AppendVarint(b, reader)
		}
	}

	b = binary.AppendVarint(b, int64(len(n.news)))
	return append(b, n.news...)
}

// pin adds a note of the node from, with the news that told has for others, and takes down notes that are old or too many.
func (all *board) pin(now int64, from int64, told *node.Told) {
	n := note{version: max(all.last+1, now), from: from, all: told.All, nodes: told.Nodes, news: node.AppendNews(nil, &told.News)}
	all.last = n.version
	all.notes = append(all.notes, n)

	// The newest notes stay, as far as they are young and fit into maxBoard together.
	size := 0
	for i := range slices.Backward(all.notes) {
		size += len(all.notes[i].append(nil))
		if size > maxBoard || all.notes[i].version < now-noteLife {
			all.drop(i+1, now)
			return
		}
	}
}

// drop takes down the first n notes, at a time of the store's clock. An old note that only asks nodes to come is no loss: the nodes have come, or others have
// found them silent.
func (all *board) drop(n int, now int64) {
	for i := range all.notes[:n] {
		if note := &all.notes[i]; note.version > now-askLife || !note.onlyAsks() {
			all.dropped = note.version
		}
	}
	all.notes = all.notes[n:]
}

// onlyAsks reports whether a note only says that lines have moved, which asks nodes to come.
func (n *note) onlyAsks() bool {
	news, err := node.ParseNews(n.news)
	return err == nil && len(news.Called)+len(news.Useless)+len(news.Closed) == 0
}

// since returns the news for the node reader, of all notes that other nodes have added after a version. h.Lost says that
// a note after the version was taken down already.
func (all *board) since(version, reader int64) (h node.Heard, err error) {
	// The node has not read notes that were taken down after version.
	h.Lost = all.dropped > version
	for i := range all.notes {
		n := &all.notes[i]
		if n.version <= version || n.from == reader || !n.all && !slices.Contains(n.nodes, reader) {
			continue
		}

		news, err := node.ParseNews(n.news)
		if err != nil {
			return h, err
		}

		node.Append(&h.News, news)
	}

	return h, nil
}

// unpackNote reads a note: see append.
func unpackNote(u *node.Unpacker) note {
	n := note{version: u.Number(), from: u.Number()}
	to := u.Number()
	n.all = to == 0
	for ; to > 1 && !u.Failed(); to-- {
		n.nodes = append(n.nodes, u.Number())
	}
	n.news = u.Bytes(int(u.Number()))
	return n
}
