package registrar

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// watchAgain is how long to wait before a watch that failed is tried again. The
// poll does its work meanwhile.
const watchAgain = 5 * time.Second

// watched is a directory to watch: hint is called whenever something happens to it, or
// to a name in it that concerns.
type watched struct {
	dir, what string
	concerns  func(name string) bool
	hint      func()
}

// watch watches all directories with one inotify instance, of which a node has few,
// until ctx is done. It may miss events, and it may not work at all: then it says so
// once.
func watch(ctx context.Context, all []watched) {
	said := make([]told, len(all))
	say := func(i int, err error) {
		if said[i].news(err.Error(), err) {
			klog.InfoS("No watch on the "+all[i].what+", looking once a second instead", "directory", all[i].dir, "because", err.Error())
		}
	}
	for ctx.Err() == nil {
		w, err := fsnotify.NewWatcher()
		if err == nil {
			watchWith(ctx, w, all, say)
			_ = w.Close()
		}
		for i := range all {
			if err != nil {
				say(i, err)
			}
		}
		pause(ctx, watchAgain)
	}
}

// watchWith returns when w has failed or ctx is done. A directory that cannot be
// watched, or was removed, is tried again and again.
func watchWith(ctx context.Context, w *fsnotify.Watcher, all []watched, say func(int, error)) {
	on := make([]bool, len(all))
	again := time.NewTicker(watchAgain)
	defer again.Stop()
	for {
		for i, d := range all {
			if on[i] {
				continue
			}
			if err := w.Add(d.dir); err != nil {
				say(i, err)
				continue
			}
			on[i] = true
			d.hint() // what happened before the watch
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			for i, d := range all {
				gone := filepath.Clean(e.Name) == filepath.Clean(d.dir)
				if gone && e.Has(fsnotify.Remove|fsnotify.Rename) {
					on[i] = false
				}
				if gone || filepath.Dir(e.Name) == filepath.Clean(d.dir) && d.concerns(filepath.Base(e.Name)) {
					d.hint()
				}
			}
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			for _, d := range all {
				d.hint() // the queue overflowed: anything may have happened
			}
			klog.V(2).InfoS("The watch lost events", "err", err)
		}
	}
}
