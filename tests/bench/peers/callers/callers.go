// Package callers is callers.mjs for the peers whose callers are in Go: a closed loop, each caller starts a
// workflow, waits for its end, and starts the next one.
package callers

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Options say how many callers there are, and what is measured.
type Options struct {
	Callers         int
	WarmUp, Measure time.Duration
}

// Parse reads CALLERS WARM_UP SECONDS.
func Parse(arguments []string) (Options, error) {
	if len(arguments) != 3 {
		return Options{}, errors.New("not three numbers: CALLERS WARM_UP SECONDS")
	}
	var numbers [3]int
	for i, text := range arguments {
		number, err := strconv.Atoi(text)
		if err != nil || number <= 0 {
			return Options{}, fmt.Errorf("not a positive number: %q", text)
		}
		numbers[i] = number
	}
	return Options{
		Callers: numbers[0],
		WarmUp:  time.Duration(numbers[1]) * time.Second,
		Measure: time.Duration(numbers[2]) * time.Second,
	}, nil
}

// loop is one caller: the times of the workflows that ended in the time that counts.
func loop(from, until time.Time, runOne func() error) ([]time.Duration, error) {
	var times []time.Duration
	for begin := time.Now(); begin.Before(until); {
		if err := runOne(); err != nil {
			return nil, err
		}
		end := time.Now()
		if !end.Before(from) && end.Before(until) {
			times = append(times, end.Sub(begin))
		}
		begin = end
	}
	return times, nil
}

// Measure prints one JSON line on stdout. Any error ends it: a figure with errors in it means nothing.
func Measure(options Options, runOne func() error) error {
	from := time.Now().Add(options.WarmUp)
	until := from.Add(options.Measure)
	all := make([][]time.Duration, options.Callers)
	failures := make([]error, options.Callers)
	var group sync.WaitGroup
	for i := range options.Callers {
		group.Go(func() { all[i], failures[i] = loop(from, until, runOne) })
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			return err // one is enough: most often all have the same
		}
	}
	times := slices.Concat(all...)
	if len(times) == 0 {
		return errors.New("no workflow ended in the time")
	}
	slices.Sort(times)
	quantile := func(q float64) float64 {
		at := min(len(times)-1, int(float64(len(times))*q))
		return math.Round(times[at].Seconds()*1e4) / 10
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"callers":         options.Callers,
		"workflows":       len(times),
		"workflows_per_s": math.Round(float64(len(times)) / options.Measure.Seconds()),
		"p50_ms":          quantile(0.5),
		"p99_ms":          quantile(0.99),
	})
}
