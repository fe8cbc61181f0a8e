// Command gohttp calls a model with net/http alone, at $BASE_URL.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

var client = &http.Client{}

func main() {
	if seconds, err := strconv.ParseFloat(os.Getenv("TIMEOUT"), 64); err == nil {
		client.Timeout = time.Duration(seconds * float64(time.Second))
	}

	switch os.Args[1] {
	case "calls":
		n, _ := strconv.Atoi(os.Args[2])
		for range n {
			call()
		}

	case "stream":
		stream(func(text string) bool { say(map[string]any{"event": text}); return true })
	case "stop": // in the middle of a stream
		stream(func(text string) bool { say(map[string]any{"event": text}); return false })
	case "defaults":
		say(map[string]any{"timeout": client.Timeout.Seconds(), "retries": 0})
	}
}

// say prints what happened, as a line of JSON.
func say(fields map[string]any) {
	_ = json.NewEncoder(os.Stdout).Encode(fields)
}

// send sends a request to the model, with the Prefer field that $PREFER names.
func send(body string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodPost, os.Getenv("BASE_URL")+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if wish := os.Getenv("PREFER"); wish != "" {
		req.Header.Set("Prefer", wish)
	}
	return client.Do(req)
}

// call makes one call, and says what came of it.
func call() {
	resp, err := send(`{"model":"m"}`)
	if err != nil {
		say(map[string]any{"error": fmt.Sprintf("%T", err), "message": err.Error()})
		return
	}
	defer resp.Body.Close()

	// The test reads what an SDK would make of the answer, so a body that is no JSON is left empty.
	var answer any
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	say(map[string]any{
		"status": resp.StatusCode, "answer": answer, "retryAfter": resp.Header.Get("Retry-After"),
		"via": resp.Header.Get("Via"), "timing": resp.Header.Get("Server-Timing"),
	})
}

// stream calls yield with each text of a stream, until yield returns false. It says an error of the request, and ends at
// an event that is no JSON.
func stream(yield func(text string) bool) {
	resp, err := send(`{"model":"m","stream":true}`)
	if err != nil {
		say(map[string]any{"error": fmt.Sprintf("%T", err), "message": err.Error()})
		return
	}

	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, found := strings.CutPrefix(lines.Text(), "data: {")
		if !found {
			continue
		}

		// The last event, [DONE], is no object: it begins with no brace, and was left out above.
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if json.Unmarshal([]byte("{"+data), &chunk) != nil || !yield(chunk.Choices[0].Delta.Content) {
			return
		}
	}
}
