package conn

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrSingle means that the server is part of a cluster and the client is not for one.
var ErrSingle = errors.New("the server is part of a cluster: it needs redis.NewClusterClient")

// explain adds to an error of a server what would help, where its own words leave
// that open.
func (c *Conn) explain(err error) error {
	var said redis.Error
	if !errors.As(err, &said) {
		return err
	}
	text := said.Error()
	begins := func(words string) bool { return strings.HasPrefix(text, words) }
	switch {
	case c.Single() && (begins("MOVED ") || begins("ASK ") || begins("CROSSSLOT ")):
		return fmt.Errorf("%w: %w", ErrSingle, err)
	case begins("NOPERM ") && strings.Contains(text, " key"):
		return fmt.Errorf("%w (it needs ~NAMESPACE:*)", err)
	case begins("ERR The user executing the script can't run this command"): // Redis 7.0 does not say which
		return fmt.Errorf("%w (docs/redis.md lists the commands that it needs)", err)
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("%w (no Sentinel knows a master of that name)", err)
	}
	return err
}
