import Asking
import Diagnostics
import TestSupport
import Testing

@testable import Catalog
@testable import Judging

/// Tests of the queue of questions: their order, and which ones are sent together.
@Suite(.within(minutes: 2)) struct JudgingLineTests {
    private let lane = OnlyLane()
    private let metrics = ProjectMetrics()

    private func job(_ key: UInt64, _ text: String = "") -> JudgingJob {
        let subject = PolicySubject(role: "r", claims: text, identity: 0)
        let reply = Reply<MembershipFill>(in: .judging, unanswered: .unavailable) { _ in }
        return JudgingJob(key: .policy(key), work: .fill(subject, reply), metrics)
    }

    private func line(_ jobs: [JudgingJob]) -> JudgingLine {
        var line = JudgingLine()
        for job in jobs { line.add(job, to: lane) }
        return line
    }

    private func texts(_ jobs: [JudgingJob]) -> [String] {
        jobs.map { job in
            defer { job.giveUp() }
            guard case .fill(let subject, _) = job.work else { return "?" }
            return subject.claims
        }
    }

    @Test func `what is given up counts as not answered`() {
        for job in [job(1), job(2)] { job.giveUp() }
        #expect(metrics.policyFailures.value == 2)
    }

    @Test func `a key's jobs are taken together, in their order, and keys take turns`() {
        var line = line([job(1, "a"), job(2, "b"), job(1, "c")])
        let turns = [line.take(lane), line.take(lane), line.take(lane)]
        #expect(turns.map { texts($0) } == [["a", "c"], ["b"], []])
    }

    @Test func `no key is with two threads`() {
        var line = line([job(1, "a")])
        let first = line.take(lane)
        line.add(job(1, "b"), to: lane)
        line.add(job(2, "c"), to: lane)
        let (other, none) = (line.take(lane), line.take(lane))
        #expect(texts(other) == ["c"] && none.isEmpty)
        let hasNext = (line.finished(first, lane), line.finished(other, lane))
        #expect(hasNext == (true, false))
        #expect(texts(first) + texts(line.take(lane)) == ["a", "b"])
    }

    @Test func `what is too much for one batch waits for the next turn`() {
        var line = line((0...Limits.policyBatchJobs).map { job(1, "\($0)") } + [job(2, "other")])
        let first = line.take(lane)
        let second = line.take(lane)
        _ = line.finished(first, lane)
        let third = line.take(lane)
        #expect(first.count == Limits.policyBatchJobs && texts(second) == ["other"])
        #expect(texts(third) == ["\(Limits.policyBatchJobs)"])
        _ = texts(first)
    }

    @Test func `what waits is handed back, once`() {
        var line = line([job(1, "a"), job(2, "b"), job(1, "c")])
        let (rest, again) = (line.removeAll(), line.removeAll())
        #expect(texts(rest) == ["a", "c", "b"] && again.isEmpty)
    }
}
