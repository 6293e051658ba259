import CLinux
import Glibc
import System

/// What a process has used of the processor so far, thread by thread.
struct ProcessUse {
    struct Thread {
        var name: String
        var nanoseconds: UInt64
    }

    private(set) var threads: [String: Thread] = [:]

    init(_ process: Int32) throws {
        for thread in try DiskDirectory("/proc/\(process)/task").names() {
            let path = "/proc/\(process)/task/\(thread)"
            // A thread may have ended since.
            guard let name = TextFile.read(path + "/comm"), let used = TextFile.read(path + "/schedstat"),
                let nanoseconds = used.split(separator: " ").first.flatMap({ UInt64($0) })
            else { continue }
            threads[thread] = Thread(name: String(name.prefix { !$0.isNewline }), nanoseconds: nanoseconds)
        }
    }

    /// Between an earlier look and this one, of the threads whose names begin so.
    func nanoseconds(since earlier: ProcessUse, threads prefix: String = "") -> Double {
        var total: UInt64 = 0
        for (number, thread) in threads where thread.name.hasPrefix(prefix) {
            total += thread.nanoseconds - min(thread.nanoseconds, earlier.threads[number]?.nanoseconds ?? 0)
        }
        return Double(total)
    }
}

enum ProcessMemory {
    /// What a process has in memory of its own: shared code and files are not counted.
    static func privateBytes(_ process: Int32) throws -> Double {
        let kinds = ["Private_Clean", "Private_Dirty"].compactMap { kind in
            TextFile.line(kind, in: "/proc/\(process)/smaps_rollup").flatMap { Double($0.prefix { $0 != " " }) }
        }
        guard kinds.count == 2 else { throw BenchFailure("the memory of process \(process) is not known") }
        return (kinds[0] + kinds[1]) * 1024
    }
}

/// Processes on processors of their own, so that servers that are compared have the same one, and their clients another.
enum ProcessorPin {
    static let servers = 0
    static let clients = Processors.count - 1

    /// All threads that a process has; those that it starts later are where their parents are.
    static func put(_ processes: [Int32], on processor: Int) throws {
        for process in processes {
            for thread in try DiskDirectory("/proc/\(process)/task").names() {
                // A thread may have ended since.
                if let number = Int32(thread) { _ = tw_pin_thread(number, Int32(processor)) }
            }
        }
    }
}
