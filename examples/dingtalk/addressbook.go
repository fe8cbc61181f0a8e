// Dingtalk pulls a company's address book from DingTalk (钉钉), as fast as its limits allow, and prints each person once.
// DINGTALK_APP_KEY and DINGTALK_APP_SECRET belong to an application (企业内部应用) whose range (权限范围) is the company,
// with the permissions (权限点) qyapi_base, qyapi_get_department_list and qyapi_get_department_member. Copy this file.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/retry"
)

var pull, show = (*book).pull, fmt.Println // the demonstration beside this file replaces both

func main() {
	redisURL := flag.String("redis", "", "`URL` of the Redis in which programs share the limits and the token")
	flag.Parse()
	b := &book{key: os.Getenv("DINGTALK_APP_KEY"), secret: os.Getenv("DINGTALK_APP_SECRET")}
	c := throttle.Config{Store: memstore.New(), Policies: dingtalk.Policies(dingtalk.Options{App: b.key}), MaxWait: 20 * time.Minute}
	if *redisURL != "" {
		options, err := redis.ParseURL(*redisURL)
		if err != nil {
			log.Fatal("dingtalk: -redis is no URL such as redis://localhost:6379") // err may contain a password
		}
		b.rdb = redis.NewClient(options)
		c.Store = redisstore.New(b.rdb, redisstore.Options{})
	}
	if err := pull(b, context.Background(), c); err != nil {
		log.Fatal("dingtalk: ", err)
	}
}

type book struct { // the address book so far
	key, secret, token string
	until              time.Time     // when the token is renewed
	renewing           sync.Mutex    // guards token and until
	rdb                *redis.Client // nil for a single program
	client             *retryablehttp.Client
	departments        sync.WaitGroup          // goroutines, one for each department
	fail               context.CancelCauseFunc // ends all work with an error
	met                sync.Map                // ids of the people that were shown
}

func (b *book) pull(ctx context.Context, c throttle.Config) error { // shows all people, each once; returns the first error
	if b.key == "" || b.secret == "" {
		return errors.New("set DINGTALK_APP_KEY and DINGTALK_APP_SECRET")
	}
	b.client = retry.NewClient(throttle.Must(throttle.New(c))) // each attempt waits for its start
	ctx, b.fail = context.WithCancelCause(ctx)
	b.departments.Go(func() { b.department(ctx, 1) })
	b.departments.Wait()
	return context.Cause(ctx)
}

// department shows the people of a department that nobody has shown, and begins the departments below it. Its error ends all work.
func (b *book) department(ctx context.Context, id int) {
	a, err := b.call(ctx, "/topapi/v2/department/listsubid", `{"dept_id":%d}`, id)
	for _, below := range a.Result.Below {
		b.departments.Go(func() { b.department(ctx, below) })
	}
	for more := true; more && err == nil; more = a.Result.More { // page by page: Next is 0 before the first
		a, err = b.call(ctx, "/topapi/v2/user/list", `{"dept_id":%d,"cursor":%d,"size":100}`, id, a.Result.Next)
		for _, p := range a.Result.List {
			if _, met := b.met.LoadOrStore(p.UserID, true); !met {
				show(p.UserID, p.Name)
			}
		}
	}
	if err != nil {
		b.fail(fmt.Errorf("department %d: %w", id, err)) // the first error ends all work
	}
}

// call calls the old API, and calls it once more with a new token if DingTalk answers that the token has expired.
func (b *book) call(ctx context.Context, path, format string, in ...any) (a answer, err error) {
	expired := func() bool { return a.Code == "40001" || a.Code == "40014" || a.Code == "42001" }
	for i, token := 0, ""; i == 0 || i == 1 && expired(); i++ {
		if token, err = b.validToken(ctx, token); err == nil {
			a, err = b.post(ctx, "https://oapi.dingtalk.com"+path+"?access_token="+token, format, in...)
		}
	}
	return a, err
}

// validToken returns the token that all programs share, or a new one if there is none, or if it is refused, which DingTalk did not take.
func (b *book) validToken(ctx context.Context, refused string) (string, error) {
	b.renewing.Lock() // one caller asks for all
	defer b.renewing.Unlock()
	if b.rdb != nil {
		b.token, b.until = b.rdb.Get(ctx, "dingtalk-token-"+b.key).Val(), time.Now().Add(time.Minute) // Redis forgets it in time
	}
	if b.token != "" && b.token != refused && time.Now().Before(b.until) {
		return b.token, nil
	}

	a, err := b.post(ctx, "https://api.dingtalk.com/v1.0/oauth2/accessToken", `{"appKey":%q,"appSecret":%q}`, b.key, b.secret)
	b.token, b.until = a.AccessToken, time.Now().Add(max(a.ExpireIn*time.Second-10*time.Minute, time.Minute))
	if err == nil && b.rdb != nil {
		err = b.rdb.Set(ctx, "dingtalk-token-"+b.key, b.token, time.Until(b.until)).Err()
	}
	return b.token, err
}

type answer struct { // of any API
	Code, Message, ErrCode, ErrMsg any
	SubCode                        any `json:"sub_code"` // of errcode 88, which is an envelope
	AccessToken                    string
	ExpireIn                       time.Duration // in seconds
	Result                         struct {
		Below []int `json:"dept_id_list"`
		More  bool  `json:"has_more"`
		Next  int   `json:"next_cursor"`
		List  []struct{ UserID, Name string }
	}
}

// post sends a call that only reads, with in put into format. The retrier repeats it if the connection breaks, even within the answer.
func (b *book) post(ctx context.Context, url, format string, in ...any) (a answer, err error) {
	r, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, url, fmt.Appendf(nil, format, in...))
	if err != nil {
		return a, err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": nil} // for the retrier; not sent
	r.SetResponseHandler(func(resp *http.Response) error {
		defer resp.Body.Close()
		return json.NewDecoder(http.MaxBytesReader(nil, resp.Body, 8<<20)).Decode(&a)
	})
	resp, err := b.client.Do(r)
	a.Code = fmt.Sprint(cmp.Or(a.SubCode, a.Code, a.ErrCode))
	if err == nil && a.Code != "0" && a.AccessToken == "" { // an answer with a token has no code
		err = fmt.Errorf("%s: DingTalk answers %s, code %v: %v", r.URL.Path, resp.Status, a.Code, cmp.Or(a.ErrMsg, a.Message))
	}
	return a, err
}
