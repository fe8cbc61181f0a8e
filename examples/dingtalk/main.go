// Dingtalk pulls a company's whole address book from DingTalk, as fast as
// DingTalk's limits allow and never faster.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
	"github.com/fleetthrottle/throttle/retry"
)

func main() {
	page := flag.Bool("dashboard", false, "show the budgets on a page, and pull until you interrupt")
	flag.Parse() // internal/demo has more flags
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *page); err != nil {
		log.Fatal(err)
	}
}

const workers = 64

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
	b := book{client: retry.NewClient(transport).StandardClient()}
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

// A book is as much of the address book as has come.
type book struct {
	client *http.Client
	token  string // as DingTalk wants it in a URL
	mu     sync.Mutex
	people []string // their ids
}

// pull asks about all departments, from the first one down.
func (b *book) pull(ctx context.Context) error {
	var login struct {
		Token string `json:"access_token"`
	}
	if err := b.call(ctx, "/gettoken?appkey=dingabc&appsecret=secret", nil, &login); err != nil {
		return err
	}
	b.token = "?access_token=" + login.Token
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	free := make(chan struct{}, workers)
	var visit func(id int64)
	visit = func(id int64) {
		free <- struct{}{}
		below, err := b.department(ctx, id)
		<-free
		if err != nil {
			cancel(err) // the first error ends the work of all
		}
		for _, id := range below {
			working.Go(func() { visit(id) })
		}
	}
	working.Go(func() { visit(1) })
	working.Wait()
	return context.Cause(ctx)
}

// department notes the people of a department, and returns the departments below.
func (b *book) department(ctx context.Context, id int64) (below []int64, err error) {
	var list struct {
		Result []struct {
			ID int64 `json:"dept_id"`
		}
	}
	err = b.call(ctx, "/topapi/v2/department/listsub"+b.token, map[string]int64{"dept_id": id}, &list)
	for _, d := range list.Result {
		below = append(below, d.ID)
	}
	for more, next := true, int64(0); more && err == nil; {
		var page struct {
			Result struct {
				More bool  `json:"has_more"`
				Next int64 `json:"next_cursor"`
				List []struct{ UserID string }
			}
		}
		err = b.call(ctx, "/topapi/v2/user/list"+b.token, map[string]int64{"dept_id": id, "cursor": next, "size": 100}, &page)
		b.mu.Lock()
		for _, user := range page.Result.List {
			b.people = append(b.people, user.UserID)
		}
		b.mu.Unlock()
		more, next = page.Result.More, page.Result.Next
	}
	return below, err
}

// call makes one call, as soon as all limits have room.
func (b *book) call(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://oapi.dingtalk.com"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return errors.Unwrap(err) // http.Client's own part of the error holds the URL, and with it the token
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	code := struct{ ErrCode int }{-1} // DingTalk refuses with status 200, and a ban has no code at all
	if err := json.Unmarshal(answer, &code); err != nil || code.ErrCode != 0 {
		return fmt.Errorf("DingTalk refused: %s", answer)
	}
	return json.Unmarshal(answer, out)
}
