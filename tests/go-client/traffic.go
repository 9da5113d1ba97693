package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// traffic is what went over the wire, so that a check can tell how something was done and not only that it was.
type traffic struct {
	mutex     sync.Mutex
	exchanges []exchange
}

type exchange struct {
	method, url, contentType string
	status                   int
}

// watchTraffic sees every answer that a client made from this configuration gets.
func watchTraffic(config *rest.Config) *traffic {
	seen := &traffic{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return recorder{seen, next} })
	return seen
}

type recorder struct {
	seen *traffic
	next http.RoundTripper
}

func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err == nil {
		r.seen.mutex.Lock()
		defer r.seen.mutex.Unlock()
		contentType := response.Header.Get("Content-Type")
		r.seen.exchanges = append(r.seen.exchanges, exchange{request.Method, request.URL.String(), contentType, response.StatusCode})
	}
	return response, err
}

// all complains of the first exchange that is not as it should be.
func (t *traffic) all(should func(exchange) bool) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if len(t.exchanges) == 0 {
		return fmt.Errorf("there was no traffic")
	}
	for _, each := range t.exchanges {
		if !should(each) {
			return fmt.Errorf("%s %s was answered with %d in %q", each.method, each.url, each.status, each.contentType)
		}
	}
	return nil
}

// some complains when no exchange is as asked for.
func (t *traffic) some(what string, is func(exchange) bool) error {
	if t.all(func(each exchange) bool { return !is(each) }) == nil {
		return fmt.Errorf("there was no %s", what)
	}
	return nil
}

func inProtobuf(each exchange) bool { return strings.HasPrefix(each.contentType, protobuf) }

// typed is a client that speaks protobuf only, and what it says.
func typed(config *rest.Config) (*kubernetes.Clientset, *traffic, error) {
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf
	seen := watchTraffic(config)
	client, err := kubernetes.NewForConfig(config)
	return client, seen, err
}
