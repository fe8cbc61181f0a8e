package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
)

// announce says what is about to happen.
func (c config) announce(w io.Writer, upstream *fake.Server) {
	if upstream == nil {
		fmt.Fprintf(w, "upstream   %s\n", host(c.base))
	} else {
		fmt.Fprintf(w, "upstream   a fake DingTalk on %s: %s people in %d departments\n",
			host(c.base), thousands(upstream.Company().People()), upstream.Company().Departments())
	}
	fmt.Fprintf(w, "limits     %d calls a second per app and API (%s edition), %s\n",
		c.perSecond(), c.edition, c.addressRule())
	fmt.Fprintf(w, "fleet      %d nodes × %d workers, %s\n\n", c.nodes, c.workers, c.sharing())
}

// addressRule is the rule per address, and honest about its scale.
func (c config) addressRule() string {
	if !c.unthrottled {
		return "10,000 calls in 20 s per address"
	}
	o := c.rules()
	return fmt.Sprintf("%d calls in %v per address\n"+
		"           (scaled by a hundred, ban of %v: really 10,000 calls in 20 s, ban of 5 minutes)",
		o.Address, o.AddressWindow, o.BanFor)
}

func (c config) sharing() string {
	switch {
	case c.unthrottled:
		return "without the library"
	case c.redis != "":
		return "each a process; budgets in Redis"
	}
	return "in one process; budgets in memory"
}

// thousands prints a count as people write it.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// seconds prints a duration with one digit behind the point.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
