import Foundation
import Synchronization

/// Storage by name for positions and unsent writes between launches. Values are small and seldom written.
public protocol TidewireStorage: Sendable {
    func load(_ name: String) -> Data?
    /// Saves the data under a name; nil removes it.
    func save(_ data: Data?, _ name: String)
    func removeAll()
}

/// Storage in memory, lost when the app ends.
public final class MemoryStorage: TidewireStorage {
    private let values = Mutex<[String: Data]>([:])

    public init() {}

    public func load(_ name: String) -> Data? { values.withLock { $0[name] } }
    public func save(_ data: Data?, _ name: String) { values.withLock { $0[name] = data } }
    public func removeAll() { values.withLock { $0 = [:] } }
}

/// Storage with one file for each value, in a directory of its own.
public struct FileStorage: TidewireStorage {
    private let directory: URL

    public init(directory: URL) {
        self.directory = directory
        try? FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    }

    private func file(_ name: String) -> URL {
        directory.appendingPathComponent(Data(name.utf8).base64EncodedString().replacing("/", with: "_"))
    }

    public func load(_ name: String) -> Data? { try? Data(contentsOf: file(name)) }

    public func save(_ data: Data?, _ name: String) {
        if let data {
            try? data.write(to: file(name), options: .atomic)
        } else {
            try? FileManager.default.removeItem(at: file(name))
        }
    }

    public func removeAll() {
        for file in (try? FileManager.default.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil)) ?? []
        {
            try? FileManager.default.removeItem(at: file)
        }
    }
}
