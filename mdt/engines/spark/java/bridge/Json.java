// JSON texts between Java and Python, for everything but rows. Characters beyond ASCII are escaped. Expressions can be
// about 500 levels deep, the limit of Python's parser.
package mdt.spark;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.Map;

final class Json {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    static {
        MAPPER.getFactory().configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true);
    }

    private Json() {}

    /** Returns the JSON of a list, a map by name, a text, a number, a boolean or null. */
    static String text(Object value) {
        try {
            return MAPPER.writeValueAsString(value);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    static JsonNode read(ByteBuffer bytes) {
        try {
            return MAPPER.readTree(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    static Map map(String text) {
        try {
            return (Map) MAPPER.readValue(text, Map.class);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }
}
