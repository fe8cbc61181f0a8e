package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestComments: which comments are counted, and which of them as docs of exported names.
func TestComments(t *testing.T) {
	const source = `// Package a does what is needed.
package a

// T holds the others.
type T struct {
	// N is that of the caller.
	N int
	n int // so many callers
}

// m: what a caller has.
func (t t) m() {
	f() // 0: none; nil: none
	// or else
}

type t int

// M returns the number of callers, another one. // twice
func (*T) M() {}
`
	r := &room{name: "a"}
	require.NoError(t, r.read("a.go", []byte(source)))
	require.Equal(t, 4, r.inDoc, r.found)
	require.Equal(t, 10, r.count, r.found)
	require.Equal(t, []string{
		`a.go:1: ["what is"]: Package a does what is needed.`,
		`a.go:4: ["the others"]: T holds the others.`,
		`a.go:6: ["that of"]: N is that of the caller.`,
		`a.go:8: ["so many"]: so many callers`,
		`a.go:11: ["what a"]: m: what a caller has.`,
		`a.go:13: [": none" "; nil" ": none"]: 0: none; nil: none`,
		`a.go:14: ["else"]: or else`,
		`a.go:19: ["another"]: M returns the number of callers, another one. // twice`,
	}, r.found)
}

// TestLua: comments of Lua stand behind two hyphens, and a subtraction is none.
func TestLua(t *testing.T) {
	r := &room{name: "lua"}
	require.NoError(t, r.read("a.lua", []byte("-- so far\nlocal x = a --else\nlocal y = a--b else\n")))
	require.Equal(t, []string{`a.lua:1: ["so far"]: so far`, `a.lua:2: ["else"]: else`}, r.found)
}

// TestRoomOf: folders that only group are no rooms.
func TestRoomOf(t *testing.T) {
	for file, room := range map[string]string{
		"limit.go":                           ".",
		"store/limit.go":                     "store",
		"internal/ledger/row.go":             "internal/ledger",
		"internal/lab/chaos/x/y.go":          "internal/lab/chaos",
		"redisstore/redisstore.go":           "redisstore",
		"redisstore/fleet/a.go":              "redisstore",
		"redisstore/internal/wire/lua/a.lua": "redisstore/internal/wire",
		"presets/internal/llm/a.go":          "presets",
		"cmd/throttle/main.go":               "cmd/throttle",
		"stores/pgstore/a.go":                "stores/pgstore",
	} {
		require.Equal(t, room, roomOf(file), file)
	}
}

// TestBounds: a room above a bound fails, a small one does not.
func TestBounds(t *testing.T) {
	require.False(t, (&room{words: 1000, count: 6, docWords: 1000, inDoc: 3}).isAbove())
	require.True(t, (&room{words: 1000, count: 7}).isAbove())
	require.True(t, (&room{words: 2000, count: 4, docWords: 1000, inDoc: 4}).isAbove())
	require.False(t, (&room{words: 100, count: 7, docWords: 100, inDoc: 7}).isAbove())
}
