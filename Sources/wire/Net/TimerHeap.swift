/// Identity of a timer on one loop. The loop ignores the identity of an expired timer.
public struct TimerID: Hashable, Sendable {
    let number: UInt32
    let generation: UInt32
}

/// Timers by deadline: a binary heap that knows the position of each timer, so that any of them can be removed.
struct TimerHeap {
    private struct Entry {
        var deadline: UInt64
        var number: UInt32
    }

    private struct Timer {
        var token: UInt64
        var generation: UInt32
        /// Index of the timer in the heap; -1 if the timer is not running.
        var place: Int32
    }

    private var heap: [Entry] = []
    private var timers: [Timer] = []
    private var free: [UInt32] = []

    var count: Int { heap.count }
    var nextDeadline: UInt64? { heap.first?.deadline }

    mutating func add(deadline: UInt64, token: UInt64) -> TimerID {
        let number: UInt32
        if let reused = free.popLast() {
            number = reused
            timers[Int(number)].token = token
        } else {
            number = UInt32(timers.count)
            timers.append(Timer(token: token, generation: 1, place: -1))
        }
        heap.append(Entry(deadline: deadline, number: number))
        siftUp(heap.count - 1)
        return TimerID(number: number, generation: timers[Int(number)].generation)
    }

    mutating func cancel(_ id: TimerID) {
        let number = Int(id.number)
        guard number < timers.count, timers[number].generation == id.generation, timers[number].place >= 0 else {
            return
        }
        remove(at: Int(timers[number].place))
    }

    /// Removes the earliest timer if it is due, and returns its token. Returns nil if none is due.
    mutating func popDue(_ now: UInt64) -> UInt64? {
        guard let first = heap.first, first.deadline <= now else { return nil }
        let token = timers[Int(first.number)].token
        remove(at: 0)
        return token
    }

    private mutating func remove(at place: Int) {
        let number = heap[place].number
        timers[Int(number)].generation &+= 1
        timers[Int(number)].place = -1
        free.append(number)
        let last = heap.removeLast()
        guard place < heap.count else { return }
        heap[place] = last
        siftUp(place)
        siftDown(Int(timers[Int(last.number)].place))
    }

    private mutating func siftUp(_ start: Int) {
        var place = start
        let entry = heap[place]
        while place > 0 {
            let parent = (place - 1) / 2
            guard entry.deadline < heap[parent].deadline else { break }
            put(heap[parent], at: place)
            place = parent
        }
        put(entry, at: place)
    }

    private mutating func siftDown(_ start: Int) {
        var place = start
        let entry = heap[place]
        while true {
            var child = 2 * place + 1
            guard child < heap.count else { break }
            if child + 1 < heap.count, heap[child + 1].deadline < heap[child].deadline { child += 1 }
            guard heap[child].deadline < entry.deadline else { break }
            put(heap[child], at: place)
            place = child
        }
        put(entry, at: place)
    }

    private mutating func put(_ entry: Entry, at place: Int) {
        heap[place] = entry
        timers[Int(entry.number)].place = Int32(place)
    }
}
