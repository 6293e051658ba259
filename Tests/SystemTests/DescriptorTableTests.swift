import Glibc
import Synchronization
import TestSupport
import Testing

@testable import System

@Suite(.within(minutes: 1)) struct DescriptorTableTests {
    /// Owner of the writing end of a pipe.
    private final class Owner: Sendable {
        private let owned: OwnedDescriptor

        init(_ pipe: Pipe) { owned = OwnedDescriptor(pipe.writing) }
    }

    /// Runs the body on a thread with its own descriptor table.
    private func onOwnTable<Answer: Sendable>(
        _ body: @escaping @Sendable () throws -> Answer
    ) throws -> Answer {
        let answer = Awaited<Result<Answer, any Error>>()
        let thread = try BackgroundThread("own table") {
            answer.set(
                Result {
                    try DescriptorTable.leaveShared(keeping: [])
                    return try body()
                })
        }
        thread.join()
        return try #require(answer.wait()).get()
    }

    /// Returns true if the other end of the pipe is closed in all tables.
    private static func isClosed(_ pipe: Pipe) -> Bool {
        Poll.wait(for: pipe.reading, timeoutMilliseconds: 20_000) && ByteStream.read(pipe.reading).isEmpty
    }

    /// Makes `number` an open descriptor of the calling thread's table, and calls `release` there. Returns true if the
    /// number is still open afterwards.
    private static func survives(_ number: Int32, release: () -> Void) -> Bool {
        guard dup2(0, number) == number else { return false }
        release()
        return fcntl(number, F_GETFD) != -1
    }

    @Test func `what another table's thread releases is closed in the shared table alone`() throws {
        let pipe = try Pipe()
        let owner = Mutex<Owner?>(Owner(pipe))
        #expect(try onOwnTable { Self.survives(pipe.writing) { owner.withLock { $0 = nil } } })
        #expect(Self.isClosed(pipe))
        ByteStream.close(pipe.reading)
    }

    @Test func `what another thread releases is closed when the table's own thread opens something`() throws {
        let made = Awaited<Int32>()
        let owner = Mutex<Owner?>(nil)
        let (isReleased, isClosed) = (Awaited<Bool>(), Awaited<Bool>())
        let thread = try BackgroundThread("opener") { [self] in
            let answer = try? onOwnTable {
                let pipe = try Pipe()
                owner.withLock { $0 = Owner(pipe) }
                made.set(pipe.writing)
                _ = isReleased.wait()
                _ = try Wake()
                return Self.isClosed(pipe)
            }
            isClosed.set(answer == true)
        }
        let number = try #require(made.wait())
        #expect(try onOwnTable { Self.survives(number) { owner.withLock { $0 = nil } } })
        isReleased.set(true)
        #expect(isClosed.wait() == true)
        thread.join()
    }
}
