import Asking
import Diagnostics
import TestSupport
import Testing

@testable import Authorizing

/// Tests of the queue of questions and of the batches that a thread removes from it.
@Suite(.within(minutes: 2)) struct ChannelLineTests {
    private let first = ChannelLine.Lane.together(isFirst: true)
    private let helper = ChannelLine.Lane.together(isFirst: false)
    private let metrics = ProjectMetrics()

    private func job(_ topic: String, of subject: String = "ana") -> ChannelJob {
        let question = ChannelQuestion(
            topic: Array(topic.utf8), role: "r", subject: subject, claims: "{}", headers: "{}", probe: .write)
        return ChannelJob(question, askedAt: 0, metrics) { _ in }
    }

    private func line(_ jobs: [ChannelJob], in lane: ChannelLine.Lane) -> ChannelLine {
        var line = ChannelLine()
        for job in jobs { line.add(job, to: lane) }
        return line
    }

    private func topics(_ jobs: [ChannelJob]) -> [String] {
        defer { for job in jobs { job.giveUp() } }
        return jobs.map { String(decoding: $0.question.topic, as: UTF8.self) }
    }

    @Test func `a question that is given up counts as one that was not answered`() {
        job("a").giveUp()
        #expect((metrics.channelProbes.value, metrics.channelProbeFailures.value) == (1, 1))
        #expect(metrics.channelProbeSeconds.snapshot().count == 1)
    }

    @Test func `who helps out begins when another is busy`() {
        var line = line((0...Limits.channelTurn).map { job("\($0)") }, in: first)
        #expect(line.hasMore(helper))
        let early = line.take(helper)
        let taken = line.take(first)
        let helped = line.take(helper)
        #expect((early.count, taken.count, helped.count) == (0, Limits.channelTurn, 1))
        #expect(!line.hasMore(helper))
        let wakes = [line.finished(taken, first), line.finished(helped, helper)]
        #expect(wakes == [true, true])
        line.add(job("last"), to: first)
        let none = line.take(helper)
        #expect(none.isEmpty)
        #expect(topics(taken + helped + line.removeAll()).count == Limits.channelTurn + 2)
    }

    @Test func `nobody takes all that ask apart while others wait`() {
        var line = line([job("a"), job("b"), job("c", of: "ben"), job("a")], in: .apart)
        let turns = [line.take(.apart), line.take(.apart), line.take(.apart), line.take(.apart)]
        // Equal questions get one answer.
        #expect(turns.map { topics($0) } == [["a", "a"], ["c"], ["b"], []])
        let woke = line.finished(turns[0], .apart)
        #expect(!woke)
    }

    @Test func `what waits in any lane is handed back, once`() {
        var line = line([job("a")], in: first)
        line.add(job("b"), to: .suspects)
        line.add(job("c"), to: .apart)
        let (rest, again) = (line.removeAll(), line.removeAll())
        #expect(topics(rest) == ["a", "b", "c"] && again.isEmpty)
    }
}

/// Tests of the check that an answer fits its question.
@Suite(.within(minutes: 2)) struct ChannelAnswerTests {
    @Test(arguments: [true, false]) func `rights say of presence what was asked`(asks: Bool) {
        let (with, without) = (
            ChannelAnswer.rights(broadcast: true, presence: false), ChannelAnswer.rights(broadcast: true, presence: nil)
        )
        #expect(with.answers(.read(presence: asks)) == asks)
        #expect(without.answers(.read(presence: asks)) != asks)
        #expect(with.answers(.write) && !without.answers(.write))
        #expect(ChannelAnswer.failed(.role).answers(.read(presence: asks)))
    }
}
