import Settings
import System

/// Location of a project's data, for the hub and for commands that read the log without the hub.
public enum ProjectPlace {
    /// Returns the directory of a project: the data directory for the project of the settings, and a directory below it
    /// for a stored project.
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
