package ownership_test

import (
	"fmt"
	"strings"

	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
)

var (
	sightNames = []string{"Unknown", "Absent", "Mine", "Refused", "Ours", "Incumbent", "Silent", "NotSocket", "DirGone"}
	phaseNames = []string{"Waiting", "Running", "Leaving", "Done"}
	opNames    = []string{"Idle", "AskingDriver", "Joining", "Looking", "Resting", "Publishing", "Claiming", "Removing", "Stopping", "Adopting", "Resuming"}
	newsNames  = []string{"Start", "DriverUp", "DriverDown", "LeaseHeld", "LeaseMissed", "Saw", "Rested", "Published", "PathTaken", "PathChanged", "PathUnfit", "PublishFailed", "Granted", "NotGranted", "Removed", "NotRemoved", "Stopped", "Adopted", "NotAdopted", "Deferred", "Resumed", "NotResumed", "Tick", "Nudge", "KubeletAsked", "KubeletConfirmed", "KubeletRefused", "KubeletLeft", "AnnounceDue", "Outdated", "SpareHeld", "SpareLost", "Orphaned", "GiveAsked", "Given", "NotGiven", "RefusedTooLong", "Term"}
	doWords    = []string{"AskDriver", "Join", "Look", "Rest", "Publish", "Claim", "Remove", "StopServing", "LetGo", "Goodbye", "RemoveLease", "Adopt", "Resume", "Give", "Decline", "Defer", "Yield", "TurnAway", "BackOff", "Exit", "Fault"}
	stageNames = []string{"", "FirstLook", "LastLook", "Emptying", "Parting", "Closing"}
	leaseNames = []string{"", "shared", "exclusive"}
	kubeNames  = []string{"", "asked", "confirmed", "refusing"}
)

func stateName(s own.State) string {
	words := []string{phaseNames[s.Phase], opNames[s.Op]}
	add := func(w string, when bool) {
		if when && w != "" {
			words = append(words, w)
		}
	}
	add(stageNames[s.Stage], true)
	add("lease="+leaseNames[s.Lease], s.Lease != own.NoLease)
	add("accepting", s.Accepting)
	add("giving", s.Giving)
	add("spare", s.Spare)
	add("orphan", s.Orphan)
	add("owed", s.Owed)
	add("alone", s.Alone)
	add("kubelet="+kubeNames[s.Kubelet], s.Kubelet != own.Quiet)
	add("due", s.Due)
	add("stale", s.Stale)
	add("again", s.Again)
	add(fmt.Sprintf("seen=%sx%d", sightNames[s.Seen.Sight], s.Seen.Times), s.Seen.Times > 0)
	return strings.Join(words, " ")
}

func eventName(e own.Event) string {
	if e.News == own.Saw || e.News == own.PathUnfit {
		return newsNames[e.News] + " " + sightNames[e.Sight]
	}
	return newsNames[e.News]
}

func doNames(actions []own.Action) string {
	var words []string
	for _, a := range actions {
		w := doWords[a.Do]
		if a.Patient {
			w += "(patient)"
		}
		words = append(words, w)
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ",")
}
