import Synchronization
import System
import TestSupport
import Testing

@testable import Asking

/// Job that records if it was given up.
final class TestJob: AskedJob {
    let number: Int
    let load: InboxLoad
    let isBoundedByAsker: Bool
    private let givenUp = Atomic<Int>(0)

    init(_ number: Int, parts: Int = 0, bytes: Int = 0, isBoundedByAsker: Bool = false) {
        self.number = number
        self.isBoundedByAsker = isBoundedByAsker
        load = InboxLoad(jobs: 1, parts: parts, bytes: bytes)
    }

    var timesGivenUp: Int { givenUp.load(ordering: .relaxed) }
    func giveUp() { givenUp.wrappingAdd(1, ordering: .relaxed) }
}

/// Queue of jobs in two lanes, each with its own bell. In each lane only one job runs at a time.
struct StrictLine: WaitingLine {
    enum Lane: Int, InboxLane, CaseIterable {
        case left, right

        static let bellCount = 2
        var bell: Int { rawValue }
    }

    private var waiting: [Lane: [TestJob]] = [:]
    private var busy: Set<Lane> = []

    mutating func add(_ job: TestJob, to lane: Lane) { waiting[lane, default: []].append(job) }

    mutating func take(_ lane: Lane) -> [TestJob] {
        guard waiting[lane]?.isEmpty == false, busy.insert(lane).inserted else { return [] }
        return [waiting[lane]?.removeFirst()].compactMap { $0 }
    }

    mutating func finished(_ jobs: [TestJob], _ lane: Lane) -> Bool {
        busy.remove(lane)
        return waiting[lane]?.isEmpty == false
    }

    mutating func removeAll() -> [TestJob] {
        defer { waiting = [:] }
        return Lane.allCases.flatMap { waiting[$0] ?? [] }
    }
}

@Suite(.within(minutes: 2)) struct InboxTests {
    private let limit = InboxLoad(jobs: 3, parts: 10, bytes: 100)

    private func inbox() throws -> Inbox<PlainLine<TestJob>> { try Inbox(holding: limit) }

    private func taken(_ inbox: Inbox<PlainLine<TestJob>>) -> [Int] {
        var seen: UInt64 = 0
        return inbox.take(OnlyLane(), until: 0, seen: &seen).map(\.number)
    }

    @Test func `what was asked is taken once, in its order`() throws {
        let inbox = try inbox()
        inbox.ask([TestJob(1), TestJob(2)])
        inbox.ask([TestJob(3)])
        #expect(taken(inbox) == [1, 2, 3])
        #expect(taken(inbox) == [])
    }

    @Test(arguments: [
        [TestJob(1), TestJob(2), TestJob(3), TestJob(4)], [TestJob(1, parts: 6), TestJob(2, parts: 5)],
        [TestJob(1, bytes: 60), TestJob(2, bytes: 41)],
    ])
    func `the one that finds no room is given up, and nobody else`(jobs: [TestJob]) throws {
        let inbox = try inbox()
        for job in jobs { inbox.ask([job]) }
        #expect(jobs.map(\.timesGivenUp) == jobs.indices.map { $0 == jobs.count - 1 ? 1 : 0 })
        #expect(taken(inbox) == jobs.dropLast().map(\.number))
    }

    @Test func `what is asked together is taken together or not at all`() throws {
        let inbox = try inbox()
        let jobs = (1...4).map { TestJob($0) }
        inbox.ask(jobs)
        #expect(jobs.allSatisfy { $0.timesGivenUp == 1 })
        #expect(taken(inbox) == [])
    }

    @Test func `who takes makes room`() throws {
        let inbox = try inbox()
        for _ in 0..<10 {
            inbox.ask([TestJob(1, parts: 10, bytes: 100)])
            #expect(taken(inbox) == [1])
        }
    }

    @Test func `what its asker bounds finds room in a full inbox, and takes it from others`() throws {
        let inbox = try inbox()
        let (bounded, other) = (TestJob(2, parts: 10, isBoundedByAsker: true), TestJob(3))
        inbox.ask([TestJob(1, parts: 10)])
        inbox.ask([bounded])
        inbox.ask([other])
        #expect((bounded.timesGivenUp, other.timesGivenUp) == (0, 1))
        #expect(taken(inbox) == [1, 2])
    }

    @Test func `a closed inbox hands back what waited, and takes nothing, whoever bounds it`() throws {
        let inbox = try inbox()
        inbox.ask([TestJob(1), TestJob(2)])
        #expect(inbox.close().map(\.number) == [1, 2])
        let late = [TestJob(3), TestJob(4, isBoundedByAsker: true)]
        for job in late { inbox.ask([job]) }
        #expect(late.map(\.timesGivenUp) == [1, 1])
        #expect(!inbox.pass([TestJob(5)], to: OnlyLane()))
        #expect(inbox.close().isEmpty && taken(inbox) == [])
    }

    @Test func `nobody sleeps beyond the deadline, nor through a bell that rang before`() throws {
        let inbox = try inbox()
        var seen: UInt64 = 0
        let end = Clock.monotonicNanoseconds() + 20_000_000
        #expect(inbox.take(OnlyLane(), until: end, seen: &seen).isEmpty)
        #expect(Clock.monotonicNanoseconds() >= end)
        inbox.ring()
        #expect(inbox.take(OnlyLane(), until: .max, seen: &seen).isEmpty)
    }

    @Test func `nobody is woken for nothing`() throws {
        let inbox = try inbox()
        var seen: UInt64 = 0
        inbox.ask([])
        #expect(inbox.pass([], to: OnlyLane()))
        let end = Clock.monotonicNanoseconds() + 10_000_000
        #expect(inbox.take(OnlyLane(), until: end, seen: &seen).isEmpty)
        #expect(Clock.monotonicNanoseconds() >= end)
    }

    @Test func `a lane's threads take their own, and go on when another of them is done`() throws {
        let inbox = try Inbox<StrictLine>(holding: limit)
        var (left, right): (UInt64, UInt64) = (0, 0)
        #expect(inbox.add([TestJob(1), TestJob(2)], to: .left))
        #expect(inbox.take(.right, until: 0, seen: &right).isEmpty)
        let first = inbox.take(.left, until: 0, seen: &left)
        #expect(first.map(\.number) == [1])
        #expect(inbox.take(.left, until: 0, seen: &left).isEmpty)
        #expect(inbox.pass(first, to: .right))
        inbox.finished(first, .left)
        #expect(inbox.take(.left, until: .max, seen: &left).map(\.number) == [2])
        #expect(inbox.take(.right, until: .max, seen: &right).map(\.number) == [1])
    }
}

@Suite(.within(minutes: 2)) struct AskingThreadsTests {
    /// Worker that keeps its questions and answers none before it ends.
    private final class Keeper: AskingWorker {
        let inbox: Inbox<PlainLine<TestJob>>
        private let kept: Mutex<[TestJob]>
        private let firstCame: Awaited<Int>
        private var mine: [TestJob] = []

        init(_ inbox: Inbox<PlainLine<TestJob>>, _ firstCame: Awaited<Int>) {
            self.inbox = inbox
            self.firstCame = firstCame
            kept = Mutex([])
        }

        func work(_ jobs: [TestJob]) {
            mine += jobs
            if let first = mine.first { firstCame.set(first.number) }
        }

        func end() { for job in mine { job.giveUp() } }
    }

    @Test func `everything is given up once when the threads end`() throws {
        let inbox = try Inbox<PlainLine<TestJob>>(holding: InboxLoad(jobs: 10))
        let came = Awaited<Int>()
        let threads = try AskingThreads(inbox, [("keeper", { Keeper(inbox, came) })])
        let jobs = (0..<5).map { TestJob($0) }
        for job in jobs { inbox.ask([job]) }
        #expect(came.wait() == 0)
        threads.stop()
        let late = TestJob(5)
        inbox.ask([late])
        #expect((jobs + [late]).map(\.timesGivenUp) == Array(repeating: 1, count: 6))
        #expect(inbox.isEnding)
    }
}
