package fleet_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// docsRights returns the rights that docs/fleet.md gives a user.
func docsRights(t *testing.T, user string) []string {
	page, err := os.ReadFile("../../docs/fleet.md")
	require.NoError(t, err)
	m := regexp.MustCompile(`ACL SETUSER ` + user + ` on >PASSWORD (.*)\n`).FindSubmatch(page)
	require.NotNil(t, m)
	return strings.Fields(string(m[1]))
}

// docsList returns the rights in the block that follows a sentence of docs/fleet.md.
func docsList(t *testing.T, sentence string) []string {
	page, err := os.ReadFile("../../docs/fleet.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(page), sentence)
	require.True(t, ok)
	return strings.Fields(strings.Split(text, "```")[1])
}

func words(all []string) (list []any) {
	for _, word := range all {
		list = append(list, word)
	}
	return list
}

// newClient returns a client that is closed when t ends.
func newClient(t *testing.T, o *redis.Options) *redis.Client {
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}
