package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
)

// A load is requests that are sent, and how long each took.
type load struct {
	took    []time.Duration
	elapsed time.Duration // from the first to the last
}

func (l *load) perSecond() float64                   { return float64(len(l.took)) / l.elapsed.Seconds() }
func (l *load) quantile(share float64) time.Duration { return stat.Quantile(l.took, share) }

// callers is how many requests are on their way at once at most.
const callers = 32

// body is what each request sends: as long as a short question to a language model.
var body = strings.Repeat("question ", 100)

// send sends requests to a URL for a time: a number per second or, with 0, as fast as it goes.
func send(client *http.Client, url string, rate int, during time.Duration) (*load, error) {
	var mu sync.Mutex
	var failed error
	l := &load{}
	due := make(chan time.Time)

	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for at := range due {
				err := one(client, url)
				mu.Lock()
				l.took = append(l.took, time.Since(at))
				if err != nil {
					failed = err
				}

				mu.Unlock()
			}
		})
	}

	begun := time.Now()
	for i := 0; time.Since(begun) < during; i++ {
		at := time.Now()
		if rate > 0 {
			at = begun.Add(time.Duration(i) * time.Second / time.Duration(rate))
			time.Sleep(time.Until(at)) // a caller that is late counts from when it was due
		}

		due <- at
	}

	close(due)
	all.Wait()
	l.elapsed = time.Since(begun)

	return l, failed
}

// one sends one request.
func one(client *http.Client, url string) error {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}

	req.Header.Set("Authorization", "Bearer key")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}

	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", resp.Status)
	}

	return nil
}
