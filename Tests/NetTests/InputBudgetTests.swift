import Diagnostics
import Glibc
import Net
import System
import TestSupport
import Testing

/// Tests of the limits on unfinished input: a limit on the bytes of all connections together, and a time limit.
@Suite(.serialized, .within(minutes: 10)) struct InputBudgetTests {
    private func eventually(_ stage: Stage, _ holds: () -> Bool) -> Bool {
        stage.diary.wait { _ in holds() ? true : nil } ?? false
    }

    @Test func `who begins more than there is room for is sent away, and who began little is not`() throws {
        let budget = InputBudget(2 << 20)
        let stage = try Stage(
            {
                $0.inputBudget = budget
                $0.receiveBytes = 4 << 20
            }, script: { $0.onReceived = { _, _, _ in 0 } })
        let small = try stage.connect()
        try small.send(pattern(100_000))
        #expect(eventually(stage) { budget.usedBytes >= 100_000 })
        let large = try (0..<4).map { _ in try stage.connect() }
        for client in large { _ = try? client.send(pattern(900_000)) }
        let refused = stage.diary.wait { entries in
            entries.count { if case .hadNoRoom = $0 { true } else { false } } >= 1 ? true : nil
        }
        #expect(refused == true)
        #expect(stage.diary.waitForEnd() == .inputTooLong)
        #expect(budget.usedBytes <= (2 << 20) + (1 << 20))
        // The small connection is still open. The memory of the large ones becomes free when they close.
        for client in large { client.close() }
        #expect(eventually(stage) { budget.usedBytes < 200_000 && budget.usedBytes >= 100_000 })
        small.close()
        #expect(eventually(stage) { budget.usedBytes == 0 })
        #expect(stage.metrics.unfinishedInputRefused[.noRoom].value >= 1)
    }

    @Test func `a part of the clients cannot use up what the others need`() throws {
        let whole = InputBudget(8 << 20)
        let part = InputBudget(1 << 20, of: whole)
        let stage = try Stage(
            {
                $0.inputBudget = whole
                $0.receiveBytes = 4 << 20
            },
            script: {
                $0.onReceived = { _, _, _ in 0 }
                $0.onOpened = { loop, id in loop.bill(id, to: part) }
            })
        let client = try stage.connect()
        _ = try? client.send(pattern(2 << 20))
        #expect(stage.diary.waitForEnd() == .inputTooLong)
        #expect(eventually(stage) { part.usedBytes == 0 && whole.usedBytes == 0 })
    }

    @Test func `what is not finished in time ends its connection, whatever else comes`() throws {
        let stage = try Stage(
            { $0.unfinishedLimit = .milliseconds(300) },
            script: {
                // The application consumes each byte, as it consumes pings between the fragments of a message. The
                // message continues.
                $0.onReceived = { loop, id, bytes in
                    loop.hold(10, for: id, restarting: false)
                    return bytes.byteCount
                }
            })
        let client = try stage.connect()
        let isOver = TestSupport.eventually {
            stage.diary.all.contains { if case .tookTooLong = $0 { true } else { false } }
                || (try? client.send([1])) == nil
        }
        #expect(isOver)
        #expect(stage.diary.waitForEnd() == .inputTooLong)
    }

    @Test func `who goes on to another message has its time anew`() throws {
        let stage = try Stage(
            { $0.unfinishedLimit = .seconds(2) },
            script: {
                $0.onReceived = { loop, id, bytes in
                    loop.hold(10, for: id, restarting: true)
                    loop.send(bytes.bytes, to: id)
                    return bytes.byteCount
                }
            })
        let client = try stage.connect()
        let began = System.Clock.monotonicNanoseconds()
        let isPast = try TestSupport.eventually {
            try client.send([7])
            #expect(try client.receive(1) == [7])
            return System.Clock.monotonicNanoseconds() - began > 3_000_000_000
        }
        #expect(isPast)
        #expect(stage.diary.all.allSatisfy { if case .tookTooLong = $0 { false } else { true } })
    }
}
