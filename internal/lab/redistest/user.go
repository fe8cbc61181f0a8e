package redistest

import (
	"context"
	"os"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Rights returns the rights that a page of docs gives a user: what follows
// "ACL SETUSER NAME on >PASSWORD" there.
func Rights(t TB, page, name string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^ACL SETUSER `+name+` on >PASSWORD (.*)$`).FindAllSubmatch(text, -1)
	if len(m) != 1 {
		t.Fatalf("redistest: %s has %d lines for the user %q", page, len(m), name)
	}
	return strings.Fields(string(m[0][1]))
}

// Password is the password of all users that tests make.
const Password = "sesame-52"

// User makes a user with exactly those rights, and returns the options of its clients.
func (s *Server) User(t TB, name string, rights []string) *redis.Options {
	t.Helper()
	words := []any{"ACL", "SETUSER", name, "reset", "on", ">" + Password}
	for _, right := range rights {
		words = append(words, right)
	}
	if err := s.Client(t).Do(context.Background(), words...).Err(); err != nil {
		t.Fatalf("redistest: %v on %s: %v", words, s.Addr, err)
	}
	o := s.Options()
	o.Username, o.Password = name, Password
	return o
}
