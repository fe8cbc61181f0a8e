// Night pulls the orders of some parts, page by page, beside programs in Python that pull the remaining parts under the same limit.
// It may be killed at any moment: the same command goes on after the last whole page.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/retry"
)

func main() {
	first, last := flag.Int("first", 0, "the first part"), flag.Int("last", 7, "the last part")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal("REDIS_URL is no address of a Redis") // err may hold the password
	}

	host := os.Getenv("API_HOST")
	transport, err := throttle.New(throttle.Config{
		Store: redisstore.New(redis.NewClient(options), redisstore.Options{}),
		Policies: []throttle.Policy{ // as in policies.yaml
			{Name: "orders", Match: host + "/", Limit: throttle.LeakyBucket(5000, time.Hour)},
		},
		MaxWait: throttle.Forever, // the night is long enough
		Base:    &withToken{host: host},
	})
	if err != nil {
		log.Fatal(err)
	}
	client := retry.NewClient(transport).StandardClient()

	var parts sync.WaitGroup
	for part := *first; part <= *last; part++ {
		parts.Go(func() {
			if err := pull(ctx, client, host, part); err != nil {
				log.Println("part", part, "is not complete:", err)
			}
		})
	}
	parts.Wait()
}

// A state is how far a part has come: Size bytes of its rows lie before the page of Cursor.
type state struct {
	Cursor string `json:"cursor"`
	Size   int64  `json:"size"`
	Done   bool   `json:"done"`
}

// pull writes the orders of a part to a file, page by page, from the page after the last one of an earlier run. The file of the state says how far it came.
func pull(ctx context.Context, client *http.Client, host string, part int) error {
	var s state
	name := fmt.Sprintf("part-%02d", part)

	// Without a state this is the first run.
	switch text, err := os.ReadFile(name + ".state"); {
	case err == nil:
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}

	rows, err := os.OpenFile(name+".jsonl", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer rows.Close()

	// Drop the rows of a page that the state does not have.
	if err := rows.Truncate(s.Size); err != nil {
		return err
	}
	if _, err := rows.Seek(s.Size, io.SeekStart); err != nil {
		return err
	}

	// Write the rows of a page first, and then the state: a crash between the two repeats the page.
	for !s.Done {
		var page struct {
			Orders []json.RawMessage
			Next   string
		}
		if err := get(ctx, client, fmt.Sprintf("https://%s/v1/orders?part=%d&cursor=%s", host, part, url.QueryEscape(s.Cursor)), &page); err != nil {
			return err
		}
		for _, order := range page.Orders {
			n, err := fmt.Fprintf(rows, "%s\n", order)
			s.Size += int64(n)
			if err != nil {
				return err
			}
		}
		s.Cursor, s.Done = page.Next, page.Next == ""
		if err := s.save(rows, name+".state"); err != nil {
			return err
		}
	}
	return nil
}

// save writes the state to a file, after the rows are on the disk. A rename is one step, so a kill leaves the old state or the new one.
func (s state) save(rows *os.File, name string) error {
	if err := rows.Sync(); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	file, err := os.Create(name + ".new")
	if err != nil {
		return err
	}

	// Sync before the rename, or a power failure could leave an empty state.
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// get calls a URL and decodes the answer into out. Every status except 200 is an error.
func get(ctx context.Context, client *http.Client, url string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// withToken is below throttle: it gives a request its token after the wait, so no token expires in line.
type withToken struct {
	host    string
	mu      sync.Mutex
	token   string
	expires time.Time
}

// RoundTrip implements http.RoundTripper. If the token expires within two seconds it first gets a new one, and other requests wait meanwhile.
func (w *withToken) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	if time.Until(w.expires) < 2*time.Second {
		var answer struct {
			Token string
			Lasts float64 // seconds
		}
		if err := get(req.Context(), http.DefaultClient, "https://"+w.host+"/token", &answer); err != nil {
			w.mu.Unlock()
			return nil, err
		}
		w.token, w.expires = answer.Token, time.Now().Add(time.Duration(answer.Lasts*float64(time.Second)))
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+w.token)
	w.mu.Unlock()
	return http.DefaultTransport.RoundTrip(req)
}
