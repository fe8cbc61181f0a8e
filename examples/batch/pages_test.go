package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParts: the parts of all machines together are all pages, each once, and pages are all ids, each
// once.
func TestParts(t *testing.T) {
	for _, last := range []int{1, 2, 49, 50, 51, 499, 500, 1001} {
		for _, size := range []int{1, 2, 50} {
			for parts := 1; parts <= 5; parts++ {
				pulled := make([]int, last+1) // how often each id is
				for part := range parts {
					f, err := openFolder(t.TempDir(), "orders", last, size, part, parts)
					require.NoError(t, err)
					for _, p := range f.missing() {
						for id := p.first; id <= p.last; id++ {
							pulled[id]++
						}
					}
				}
				for id, n := range pulled[1:] {
					require.Equal(t, 1, n, "id %d of %d, %d on a page, %d parts", id+1, last, size, parts)
				}
			}
		}
	}
}

// TestFolder: what is written is not missing any more, also for a job with another number of machines;
// what a killed process has left is nothing, and goes at the end, unless it is another machine's.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	f, err := openFolder(dir, "orders", 120, 50, 0, 1)
	require.NoError(t, err)
	require.Equal(t, []page{{1, 50}, {51, 100}, {101, 120}}, f.missing())
	require.NoError(t, write(f, page{51, 100}, []int{7, 8}))
	require.NoError(t, write(f, page{101, 120}, []int{})) // a page without rows is done, too
	text, err := os.ReadFile(filepath.Join(dir, "orders-0000000051-0000000100.jsonl"))
	require.NoError(t, err)
	require.Equal(t, "7\n8\n", string(text))
	for _, left := range []string{".orders-0000000001-0000000050.jsonl.123", ".orders-0000000051-0000000100.jsonl.4"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, left), []byte("7\n"), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "report.svg"), nil, 0o600))

	f, err = openFolder(dir, "orders", 120, 50, 1, 2)
	require.NoError(t, err)
	require.Empty(t, f.missing())
	require.NoError(t, f.finish())
	require.Equal(t, []string{filepath.Join(dir, ".orders-0000000001-0000000050.jsonl.123")}, files(t, dir, ".*"), "it is of the other machine")
	f, err = openFolder(dir, "orders", 120, 50, 0, 1)
	require.NoError(t, err)
	require.Equal(t, []page{{1, 50}}, f.missing())
	require.NoError(t, write(f, page{1, 50}, []int{1}))
	require.NoError(t, f.finish())
	require.Empty(t, files(t, dir, ".*"))
}

// TestOtherPages: a folder with pages of another size, or of fewer ids, is refused: rows would be there
// twice.
func TestOtherPages(t *testing.T) {
	dir := t.TempDir()
	f, err := openFolder(dir, "orders", 120, 50, 0, 1)
	require.NoError(t, err)
	for _, p := range f.missing() {
		require.NoError(t, write(f, p, []int{1}))
	}
	_, err = openFolder(dir, "shipments", 70, 20, 0, 1)
	require.NoError(t, err, "another source")
	_, err = openFolder(dir, "orders", 120, 60, 0, 1)
	require.ErrorContains(t, err, "do not begin or end where pages do now: use another folder")
	_, err = openFolder(dir, "orders", 130, 50, 0, 1)
	require.ErrorContains(t, err, "use another folder")
}

// TestWriteFails: a page that cannot be written has no name, and leaves nothing.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	f, err := openFolder(dir, "orders", 50, 50, 0, 1)
	require.NoError(t, err)
	require.Error(t, write(f, page{1, 50}, []func(){nil}), "rows that are no JSON")
	require.NoError(t, os.Mkdir(filepath.Join(dir, f.name(page{1, 50})), 0o755)) // no file can have the name
	require.Error(t, write(f, page{1, 50}, []int{1}))
	require.Empty(t, files(t, dir, ".*"))
}
