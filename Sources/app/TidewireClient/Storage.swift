import Foundation
import Synchronization

/// Storage, by name, for positions and unsent writes between launches of the app. Values are small and rarely written.
public protocol TidewireStorage: Sendable {
    /// Returns the data that was saved under a name; nil if there is none.
    func load(_ name: String) -> Data?
    /// Saves the data under a name; nil removes it.
    func save(_ data: Data?, as name: String)
    /// Removes all data. The client calls it when the user signs out.
    func removeAll()
}

extension Tidewire {
    /// Storage in memory. It is lost when the app ends.
    public final class MemoryStorage: TidewireStorage {
        private let values = Mutex<[String: Data]>([:])

        /// Creates an empty storage.
        public init() {}

        /// Returns the data that was saved under a name; nil if there is none.
        public func load(_ name: String) -> Data? { values.withLock { $0[name] } }
        /// Saves the data under a name; nil removes it.
        public func save(_ data: Data?, as name: String) { values.withLock { $0[name] = data } }
        /// Removes all data.
        public func removeAll() { values.withLock { $0 = [:] } }
    }

    /// Storage with one file for each value, in one directory.
    public struct FileStorage: TidewireStorage {
        private let directory: URL

        /// Creates a storage. Creates its directory if that does not exist.
        ///
        /// - Parameter directory: directory for this storage only. ``removeAll()`` removes all its files.
        public init(directory: URL) {
            self.directory = directory
            try? FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        }

        private func file(_ name: String) -> URL {
            directory.appendingPathComponent(Data(name.utf8).base64EncodedString().replacing("/", with: "_"))
        }

        /// Returns the data that was saved under a name; nil if there is none, or if it cannot be read.
        public func load(_ name: String) -> Data? { try? Data(contentsOf: file(name)) }

        /// Saves the data under a name; nil removes it. If the disk fails, the earlier data remains.
        public func save(_ data: Data?, as name: String) {
            if let data {
                try? data.write(to: file(name), options: .atomic)
            } else {
                try? FileManager.default.removeItem(at: file(name))
            }
        }

        /// Removes all files in the directory.
        public func removeAll() {
            for file in (try? FileManager.default.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil))
                ?? []
            {
                try? FileManager.default.removeItem(at: file)
            }
        }
    }
}
