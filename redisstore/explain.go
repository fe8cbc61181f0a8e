package redisstore

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// errLone means that the server is part of a cluster and the client is not for one.
var errLone = errors.New("the server is part of a cluster: it needs redis.NewClusterClient")

// explain adds to an error of a server what would help, where its own words leave
// that open.
func explain(c redis.UniversalClient, p wire.Script, err error) error {
	var said redis.Error
	if !errors.As(err, &said) {
		return err
	}
	text := said.Error()
	begins := func(words string) bool { return strings.HasPrefix(text, words) }
	_, plain := c.(*redis.Client)
	switch {
	case plain && (begins("MOVED ") || begins("ASK ") || begins("CROSSSLOT ")):
		return fmt.Errorf("%w: %w", errLone, err)
	case begins("NOPERM ") && strings.Contains(text, " key"):
		return fmt.Errorf("%w (it needs ~NAMESPACE:*)", err)
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("%w (no Sentinel knows a master of that name)", err)
	}
	if denied := deniedBy(p, text); denied != "" {
		return fmt.Errorf("%w (it needs +%s)", err, denied)
	}
	return err
}

// Where a script stood when Redis 7.0 refused it a command, whose name it keeps to
// itself; and how the script names one.
var (
	refused = regexp.MustCompile(`^ERR The user executing the script can't run this command.* on @user_script:(\d+)`)
	calling = regexp.MustCompile(`redis\.p?call\('(\w+)'`)
)

// deniedBy returns the command that the user may not run within the script, if that
// is what the server says.
func deniedBy(p wire.Script, text string) string {
	at := refused.FindStringSubmatch(text)
	if at == nil {
		return ""
	}
	n, _ := strconv.Atoi(at[1])
	lines := strings.Split(p.Source, "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	if name := calling.FindStringSubmatch(lines[n-1]); name != nil {
		return strings.ToLower(name[1])
	}
	return ""
}
