import Asking
import Diagnostics
import Synchronization
import TestSupport
import Testing

@testable import Catalog

@Suite(.within(minutes: 1)) struct CatalogBacklogTests {
    private static let request = BindingRequest(role: "r", schema: "public", table: "t")

    private final class Stage {
        var backlog: CatalogBacklog
        private let givenUp = Counter()

        init(jobs: Int = 100, parts: Int = 100, bytes: Int = 1 << 20) {
            backlog = CatalogBacklog(holding: InboxLoad(jobs: jobs, parts: parts, bytes: bytes))
        }

        var givenUpCount: UInt64 { givenUp.current }

        func resolve(_ count: Int) {
            let requests = Array(repeating: CatalogBacklogTests.request, count: count)
            let reply = Reply(in: .catalog, unanswered: CatalogJob.Resolution(outcomes: [], version: 0)) {
                [givenUp] in if $0.outcomes.isEmpty { _ = givenUp.next() }
            }
            backlog.take([.resolve(CatalogJob.ResolveJob(requests: requests, reply: reply))])
        }

        func refresh(_ deadline: UInt64) {
            let reply = Reply<CatalogSnapshot?>(in: .catalog, unanswered: nil) { [givenUp] _ in _ = givenUp.next() }
            backlog.take([.refresh(CatalogJob.RefreshJob(xid: nil, deadline: deadline, reply: reply))])
        }

        func answer(_ count: Int) {
            let jobs = backlog.resolves.prefix(count)
            backlog.removeResolves(count)
            for job in jobs { job.reply.give(CatalogJob.Resolution(outcomes: [.unavailable], version: 1)) }
        }
    }

    @Test func `what finds no room is given up, and nothing else`() {
        let stage = Stage(parts: 10)
        for _ in 0..<5 { stage.resolve(4) }
        #expect(stage.backlog.resolves.count == 2 && stage.givenUpCount == 3)
        stage.answer(1)
        stage.resolve(4)
        #expect(stage.backlog.resolves.count == 2 && stage.givenUpCount == 3)
        stage.answer(2)
        #expect(stage.givenUpCount == 3)
    }

    @Test func `bytes count as well`() {
        let stage = Stage(bytes: Self.request.byteCount * 3)
        for _ in 0..<5 { stage.resolve(1) }
        #expect(stage.backlog.resolves.count == 3 && stage.givenUpCount == 2)
        stage.answer(3)
    }

    @Test func `those who wait for news are counted, and make room when they are answered`() {
        let stage = Stage(jobs: 3)
        for deadline in 0..<5 { stage.refresh(UInt64(deadline)) }
        #expect(stage.backlog.refreshes.map(\.deadline) == [0, 1, 2] && stage.givenUpCount == 2)
        for job in stage.backlog.takeRefreshes(where: { $0.deadline < 2 }) { job.reply.giveUp() }
        for deadline in 5..<8 { stage.refresh(UInt64(deadline)) }
        #expect(stage.backlog.refreshes.map(\.deadline) == [2, 5, 6] && stage.givenUpCount == 5)
        stage.backlog.giveUp()
        #expect(stage.backlog.refreshes.isEmpty && stage.givenUpCount == 8)
        for deadline in 0..<3 { stage.refresh(UInt64(deadline)) }
        #expect(stage.backlog.refreshes.count == 3)
        stage.backlog.giveUp()
    }
}
