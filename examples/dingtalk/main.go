// Dingtalk pulls a company's whole address book from DingTalk, as fast as
// DingTalk's limits allow and never faster.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
	"github.com/fleetthrottle/throttle/retry"
)

func main() {
	page := flag.Bool("dashboard", false, "show the budgets on a page, and pull until you interrupt")
	processes := flag.Int("processes", 1, "how many processes pull together")
	of := flag.String("part", "", "which of the processes this is; the program sets it itself")
	flag.Parse() // internal/demo has more flags
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch {
	case *of != "":
		var p part
		if p, err = parsePart(*of); err == nil {
			err = runPart(ctx, os.Stdout, p)
		}
	case *processes > 1:
		err = runTogether(ctx, os.Stdout, *processes, 3000)
	default:
		err = run(ctx, os.Stdout, *page)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer, page bool) error {
	fake := dingtalktest.New(dingtalktest.Options{}) // counts, refuses and bans as DingTalk does
	config := throttle.Config{
		Store:    memstore.New(), // redisstore.New(rdb, nil) for a fleet of programs
		Policies: dingtalk.Policies(dingtalk.Options{App: "dingabc"}),
		Base:     fake, // for DingTalk itself: an *http.Transport with MaxIdleConnsPerHost: workers
	}
	if page {
		if err := showPage(ctx, w, &config, "127.0.0.1:7071"); err != nil {
			return err
		}
	}
	transport, err := throttle.New(config)
	if err != nil {
		return err
	}
	// The throttle is inside the retrier: a call that is made again waits again.
	b := book{
		client: retry.NewClient(transport).StandardClient(), url: "https://oapi.dingtalk.com",
		isMine: func(int) bool { return true },
	}
	fmt.Fprintf(w, "%d workers pull an address book, which takes about eight seconds\n", workers)
	begin := time.Now()
	err = b.pull(ctx)
	for page && err == nil { // the page shows budgets for as long as they are used
		err = b.pull(ctx)
	}
	if page && ctx.Err() != nil {
		err = nil // an interrupt is how it ends
	}
	fmt.Fprintf(w, "pulled %d people in %.1f s\n\n", len(b.people), time.Since(begin).Seconds())
	fmt.Fprint(w, fake) // what DingTalk has counted
	return err
}
