package conn

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// ErrSingle means that the server is part of a cluster and the client is not for one.
var ErrSingle = errors.New("the server is part of a cluster: it needs redis.NewClusterClient")

// explain adds to an error of a server what would help, where its own words leave
// that open. The script is the one that failed; the zero Script if none did.
func (c *Conn) explain(err error, s wire.Script) error {
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
		if command := s.CalledAt(lineOf(text)); command != "" {
			return fmt.Errorf("%w (it needs +%s, as docs/redis.md says)", err, strings.ToLower(command))
		}
		return fmt.Errorf("%w (docs/redis.md lists the rights that it needs; ACL LOG of Redis says which is missing)", err)
	case begins("NOPERM ") || begins("ERR ACL failure in script"):
		return fmt.Errorf("%w (docs/redis.md lists the rights that it needs)", err)
	case begins("WRONGTYPE "):
		return fmt.Errorf("%w (something else has written a key of the namespace)", err)
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("%w (no Sentinel knows a master of that name)", err)
	}
	return err
}

// failedAt is how a server says in which line a script failed.
var failedAt = regexp.MustCompile(`on @user_script:(\d+)`)

// lineOf returns the line that an error of a server names; 0 if it names none.
func lineOf(text string) int {
	m := failedAt.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	line, _ := strconv.Atoi(m[1]) // digits; too many of them are no line
	return line
}
