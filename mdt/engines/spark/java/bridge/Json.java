// Texts in JSON, by which Java and Python tell each other everything but rows. Letters beyond ASCII are escaped. An expression may be some
// 500 levels deep, which is as deep as Python reads.
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

    /** Returns the text of a value: lists, maps by name, texts, numbers, flags and null. */
    static String text(Object value) {
        try {
            return MAPPER.writeValueAsString(value);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    static JsonNode read(ByteBuffer from) {
        try {
            return MAPPER.readTree(from.array(), from.arrayOffset() + from.position(), from.remaining());
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
