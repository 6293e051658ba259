import Settings
import System

/// Where a project's data lies: for the hub that makes it, and for whoever reads its log beside the hub or without one.
public enum ProjectPlace {
    /// The project of the settings has the data directory itself; each that is stored has a folder in it.
    public static func directory(
        of name: String, _ configuration: Configuration
    ) throws(ProjectStoreError) -> String {
        if name == configuration.projectName { return configuration.dataDirectory }
        let store = try ProjectStore(in: open(configuration.dataDirectory), key: configuration.projectKey)
        guard let record = store.record(named: name) else {
            let names = [configuration.projectName] + store.all.map(\.externalID).sorted()
            throw ProjectStoreError(
                "\(configuration.dataDirectory) has no project \(name); it has \(names.joined(separator: ", "))")
        }
        return directory(of: record, configuration)
    }

    private static func open(_ path: String) throws(ProjectStoreError) -> DiskDirectory {
        do throws(SystemError) {
            return try DiskDirectory(path)
        } catch {
            throw ProjectStoreError("\(error)")
        }
    }

    static func directory(of record: ProjectRecord, _ configuration: Configuration) -> String {
        "\(configuration.dataDirectory)/projects/\(record.id)"
    }
}
